"""Versions that were removed, and artifacts that are to be freed.

Revision: 0008_since_0007
Follows: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008_since_0007"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "removed_versions",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task", "model", "version", name=op.f("pk_removed_versions")),
    )
    op.create_table(
        "leftover_artifacts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_leftover_artifacts")),
    )


def downgrade() -> None:
    op.drop_table("leftover_artifacts")
    op.drop_table("removed_versions")
