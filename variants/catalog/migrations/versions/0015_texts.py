"""Tasks that are asked with texts: how these become rows, and the tokenizers that do it.

Revision: 0015_since_0007
Follows: 0014_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0015_since_0007"
down_revision = "0014_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokenizers",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("text", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_column("text")
    op.drop_table("tokenizers")
