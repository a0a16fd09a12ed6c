"""Profiles of jobs' input, and of whom a decision of the scheduler is.

Profiles outlive their jobs, so that the next job of the same kind is planned with them; a decision
from before this has no job's uid in its column, and stays in the list of all.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the table and the column."""
    op.create_table(
        "profiles",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_uid", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("program", sa.String(length=253), nullable=False),
        sa.Column("pipeline", sa.String(length=128), nullable=False),
        sa.Column("model", sa.String(length=128), nullable=False),
        sa.Column("machine", sa.String(length=128), nullable=False),
        sa.Column("signature", sa.String(length=64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("measured_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
        sa.UniqueConstraint("job_uid", "source", name=op.f("uq_profiles_job_uid_source")),
    )
    for name in ("pipeline", "model", "signature", "measured_seconds"):
        op.create_index(op.f(f"ix_profiles_{name}"), "profiles", [name], unique=False)
    with op.batch_alter_table("allocations") as batch:
        batch.add_column(sa.Column("job_uid", sa.String(length=64), nullable=True))
        batch.create_index(op.f("ix_allocations_job_uid"), ["job_uid"], unique=False)


def downgrade() -> None:
    """Forget them."""
    with op.batch_alter_table("allocations") as batch:
        batch.drop_index(op.f("ix_allocations_job_uid"))
        batch.drop_column("job_uid")
    op.drop_table("profiles")
