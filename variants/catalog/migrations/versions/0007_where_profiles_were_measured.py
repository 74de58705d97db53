"""Where profiles were measured, and whether beside other work.

Revision: 0007
Follows: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.add_column(sa.Column("measured_on", sa.Text(), server_default="", nullable=False))
        batch_op.add_column(
            sa.Column("beside_load", sa.Boolean(), server_default="0", nullable=False)
        )


def downgrade() -> None:
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.drop_column("beside_load")
        batch_op.drop_column("measured_on")
