"""Declared peaks of demand, and what the control loop has learned.

Revision: 0003
Follows: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "peaks",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("task", sa.Text(), nullable=True),
        sa.Column("factor", sa.Double(), nullable=True),
        sa.Column("qps", sa.Double(), nullable=True),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=False),
        sa.Column("every_s", sa.Double(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_peaks")),
    )
    op.create_table(
        "learned",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_learned")),
    )
    op.execute("INSERT INTO counters (name, value) VALUES ('peak', 0)")


def downgrade() -> None:
    op.execute("DELETE FROM counters WHERE name = 'peak'")
    op.drop_table("learned")
    op.drop_table("peaks")
