"""What the owner of a job is told while it runs, as that it will cost more than its budget."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column; of jobs from before there is nothing to tell."""
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(
            sa.Column("warning", sa.String(length=1024), nullable=False, server_default="")
        )


def downgrade() -> None:
    """Forget it."""
    with op.batch_alter_table("jobs") as batch:
        batch.drop_column("warning")
