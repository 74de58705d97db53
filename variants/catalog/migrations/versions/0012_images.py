"""How the pictures of a task become numbers: ``mean`` and ``std``; null where nobody has said it.

Revision: 0012_since_0007
Follows: 0011_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0012_since_0007"
down_revision = "0011_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("image", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_column("image")
