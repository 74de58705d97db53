"""What batches take while they run, of the memory that a variant takes.

Revision: 0014_since_0007
Follows: 0013_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0014_since_0007"
down_revision = "0013_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.add_column(sa.Column("working_mib", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.drop_column("working_mib")
