"""How sure profiles are, what is to be measured again, and what builders say.

Revision: 0002
Follows: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profiling_requests",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task", "variant"],
            ["variants.task", "variants.name"],
            name=op.f("fk_profiling_requests_variants"),
        ),
        sa.PrimaryKeyConstraint(
            "task", "variant", "device_kind", name=op.f("pk_profiling_requests")
        ),
    )
    with op.batch_alter_table("profile_points", schema=None) as batch_op:
        batch_op.add_column(sa.Column("error", sa.Double(), server_default="0", nullable=False))

    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.add_column(sa.Column("cold_load_s", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("host_memory_mib", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("energy_j", sa.Double(), nullable=True))

    with op.batch_alter_table("variants", schema=None) as batch_op:
        batch_op.add_column(sa.Column("agreement", sa.Double(), nullable=True))
        batch_op.add_column(
            sa.Column("note", sa.Text(), server_default=sa.text("''"), nullable=False)
        )


def downgrade() -> None:
    with op.batch_alter_table("variants", schema=None) as batch_op:
        batch_op.drop_column("note")
        batch_op.drop_column("agreement")

    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.drop_column("energy_j")
        batch_op.drop_column("host_memory_mib")
        batch_op.drop_column("cold_load_s")

    with op.batch_alter_table("profile_points", schema=None) as batch_op:
        batch_op.drop_column("error")

    op.drop_table("profiling_requests")
