"""Alembic's hook: runs the migrations on the connection that `schema` has opened."""

from __future__ import annotations

from alembic import context

from penstock.brain.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
