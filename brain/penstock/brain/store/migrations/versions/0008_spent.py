"""What the pods of a job were given, and left, beside the other figures of a roll-up: for bills."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column; roll-ups from before have none, and are in no bill."""
    with op.batch_alter_table("rollups") as batch:
        batch.add_column(sa.Column("spent", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget the figures."""
    with op.batch_alter_table("rollups") as batch:
        batch.drop_column("spent")
