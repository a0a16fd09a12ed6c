"""What a job says of the stages of its input, beside the other figures of its queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column; samples from before have none."""
    with op.batch_alter_table("samples") as batch:
        batch.add_column(sa.Column("stages", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget the stages."""
    with op.batch_alter_table("samples") as batch:
        batch.drop_column("stages")
