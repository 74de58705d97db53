"""What batches and idle devices take of energy, and what that emits.

Revision: 0004
Follows: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("profile_points", schema=None) as batch_op:
        batch_op.add_column(sa.Column("energy_j", sa.Double(), nullable=True))

    with op.batch_alter_table("device_kinds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("idle_w", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("carbon_g_per_kwh", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("device_kinds", schema=None) as batch_op:
        batch_op.drop_column("carbon_g_per_kwh")
        batch_op.drop_column("idle_w")

    with op.batch_alter_table("profile_points", schema=None) as batch_op:
        batch_op.drop_column("energy_j")
