"""Canaries with a share of the queries, and which versions were live.

Of versions that are retired nobody has noted whether they were live: they count as such.

Revision: 0010_since_0007
Follows: 0009_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0010_since_0007"
down_revision = "0009_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lived_versions",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("task", "model", "version", name=op.f("pk_lived_versions")),
    )
    op.execute(
        "INSERT INTO lived_versions (task, model, version) SELECT task, model, version"
        " FROM versions WHERE stage IN ('live', 'retired')"
    )
    op.create_table(
        "canaries",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("share", sa.Double(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("promote", sa.Boolean(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("set_at", sa.Text(), nullable=False),
        sa.Column("ended", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task", name=op.f("pk_canaries")),
    )


def downgrade() -> None:
    op.drop_table("canaries")
    op.drop_table("lived_versions")
