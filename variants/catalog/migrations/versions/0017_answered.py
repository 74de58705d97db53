"""Into which classes the answers of variants to the held-out rows fall, and how many of each class
are right.

Revision: 0017_since_0007
Follows: 0016_since_0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0017_since_0007"
down_revision = "0016_since_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("variants", schema=None) as batch_op:
        batch_op.add_column(sa.Column("answered", sa.JSON(), nullable=True))
        batch_op.add_column(sa.Column("found", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("variants", schema=None) as batch_op:
        batch_op.drop_column("found")
        batch_op.drop_column("answered")
