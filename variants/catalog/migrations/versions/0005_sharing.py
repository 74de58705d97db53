"""Whether equal queries of a task share answers, and within which limits.

Revision: 0005
Follows: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sharing_ttl_s", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("sharing_memory_mib", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_column("sharing_memory_mib")
        batch_op.drop_column("sharing_ttl_s")
