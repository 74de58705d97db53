"""Which tasks are for rows of up to a length, of several; null for all others.

Revision: 0013_since_0007
Follows: 0012_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0013_since_0007"
down_revision = "0012_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("bucket", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_column("bucket")
