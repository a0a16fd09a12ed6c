"""The pods of the cluster and their nodes, as the scheduler sent them last: for what-ifs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "workloads",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sent_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workloads")),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("workloads")
