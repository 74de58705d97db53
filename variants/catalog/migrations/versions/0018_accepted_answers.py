"""The word of operators that the answers of a variant are divided as they should be.

Revision: 0018_since_0007
Follows: 0017_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0018_since_0007"
down_revision = "0017_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accepted_answers",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("since_s", sa.Double(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task", "variant", name=op.f("pk_accepted_answers")),
    )


def downgrade() -> None:
    op.drop_table("accepted_answers")
