"""Versions of models whose texts another tokenizer reads than the task's.

Revision: 0016_since_0007
Follows: 0015_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0016_since_0007"
down_revision = "0015_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("versions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("text", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("versions", schema=None) as batch_op:
        batch_op.drop_column("text")
