"""Work that is done again, and what nodes have that nobody has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None

_AMOUNTS = (
    "covered_seconds",
    "node_seconds",
    "core_seconds",
    "free_core_seconds",
    "stranded_core_seconds",
    "gib_seconds",
    "free_gib_seconds",
    "accelerator_seconds",
    "free_accelerator_seconds",
    "stranded_accelerator_seconds",
)


def upgrade() -> None:
    """Add the column and the table; of the time before nothing is known."""
    with op.batch_alter_table("rollups") as batch:
        batch.add_column(sa.Column("peak_step", sa.BigInteger(), nullable=True))
    op.create_table(
        "capacities",
        sa.Column("start_seconds", sa.Float(precision=53), nullable=False),
        *(sa.Column(name, sa.Float(precision=53), nullable=False) for name in _AMOUNTS),
        sa.PrimaryKeyConstraint("start_seconds", name=op.f("pk_capacities")),
    )


def downgrade() -> None:
    """Forget both."""
    op.drop_table("capacities")
    with op.batch_alter_table("rollups") as batch:
        batch.drop_column("peak_step")
