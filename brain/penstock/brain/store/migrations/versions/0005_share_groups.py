"""What a job that shares batches with others says of its group, beside its other figures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column; samples from before have none."""
    with op.batch_alter_table("samples") as batch:
        batch.add_column(sa.Column("share", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget the groups."""
    with op.batch_alter_table("samples") as batch:
        batch.drop_column("share")
