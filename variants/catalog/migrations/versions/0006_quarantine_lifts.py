"""Quarantines of variants that operators lifted.

Revision: 0006
Follows: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "quarantine_lifts",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task", "variant"],
            ["variants.task", "variants.name"],
            name=op.f("fk_quarantine_lifts_variants"),
        ),
        sa.PrimaryKeyConstraint("task", "variant", name=op.f("pk_quarantine_lifts")),
    )


def downgrade() -> None:
    op.drop_table("quarantine_lifts")
