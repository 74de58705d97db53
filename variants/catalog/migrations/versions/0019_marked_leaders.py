"""Which of several leaders of one epoch is meant, where a database went back.

Revision: 0019_since_0007
Follows: 0018_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0019_since_0007"
down_revision = "0018_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("leaders", schema=None) as batch_op:
        batch_op.add_column(sa.Column("mark", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("leaders", schema=None) as batch_op:
        batch_op.drop_column("mark")
