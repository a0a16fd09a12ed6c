"""Which Brains live, so that the jobs are shared out among them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "replicas",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("expires_seconds", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_replicas")),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("replicas")
