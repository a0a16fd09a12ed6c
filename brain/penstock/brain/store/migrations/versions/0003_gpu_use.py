"""What the GPUs of a job did, beside the other figures of a roll-up.

In a column of its own: a Brain of the release before, which may still run on the database while
it is replaced, reads `roles` by position.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column; roll-ups from before have none."""
    with op.batch_alter_table("rollups") as batch:
        batch.add_column(sa.Column("gpus", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget the figures."""
    with op.batch_alter_table("rollups") as batch:
        batch.drop_column("gpus")
