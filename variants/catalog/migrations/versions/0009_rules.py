"""What operators said of what is loaded.

Revision: 0009_since_0007
Follows: 0008_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0009_since_0007"
down_revision = "0008_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rules",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("until_s", sa.Double(), nullable=True),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rules")),
    )
    op.execute("INSERT INTO counters (name, value) VALUES ('rule', 0)")


def downgrade() -> None:
    op.execute("DELETE FROM counters WHERE name = 'rule'")
    op.drop_table("rules")
