"""What each revision has changed, for readers that know an earlier one.

Nothing is noted of the revisions before: who knows one of them reads everything once more.

Revision: 0011_since_0007
Follows: 0010_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0011_since_0007"
down_revision = "0010_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "changes",
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("revision", "task", name=op.f("pk_changes")),
    )


def downgrade() -> None:
    op.drop_table("changes")
