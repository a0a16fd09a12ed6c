"""What is known of nodes: measured by the checks of jobs, and overruled by people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "nodes",
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("hardware", sa.String(length=128), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("what", sa.String(length=16), nullable=False),
        sa.Column("ratio", sa.Float(precision=53), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("compute", sa.Float(precision=53), nullable=True),
        sa.Column("memory", sa.Float(precision=53), nullable=True),
        sa.Column("link", sa.Float(precision=53), nullable=True),
        sa.Column("measured_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("job_uid", sa.String(length=64), nullable=False),
        sa.Column("avoid_until_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("override", sa.String(length=16), nullable=False),
        sa.Column("override_until_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("override_by", sa.String(length=253), nullable=False),
        sa.Column("override_why", sa.String(length=1024), nullable=False),
        sa.Column("changed_seconds", sa.Float(precision=53), nullable=False),
        sa.CheckConstraint("override IN ('', 'Avoid', 'Clear')", name=op.f("ck_nodes_override")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nodes")),
    )
    op.create_index(op.f("ix_nodes_changed_seconds"), "nodes", ["changed_seconds"], unique=False)


def downgrade() -> None:
    """Forget them."""
    op.drop_table("nodes")
