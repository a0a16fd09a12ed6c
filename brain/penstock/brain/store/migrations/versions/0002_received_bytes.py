"""How many bytes data workers send, beside the other figures of the queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column; samples from before have none."""
    with op.batch_alter_table("samples") as batch:
        batch.add_column(
            sa.Column("received_bytes_per_second", sa.Float(precision=53), nullable=True)
        )


def downgrade() -> None:
    """Forget the figures."""
    with op.batch_alter_table("samples") as batch:
        batch.drop_column("received_bytes_per_second")
