"""Brings a database to the shape that this version of the code expects.

Several Brains may start on one database at once: on PostgreSQL an advisory lock makes them take
turns, on SQLite the write lock does.
"""

from __future__ import annotations

from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from penstock.brain.store.database import Database, DatabaseError

_ADVISORY_LOCK: Final = 0x70656E73  # "pens"


async def upgrade(database: Database, revision: str = "head") -> None:
    """Apply what is missing, up to `revision`.

    Raises:
        DatabaseError: The database was made by a newer version.
    """
    async with database.engine.connect() as connection:
        await connection.run_sync(_upgrade, revision, database.is_sqlite)
        await connection.commit()


async def downgrade(database: Database, revision: str) -> None:
    """Undo the migrations after `revision`; ``base`` undoes all."""
    async with database.engine.connect() as connection:
        await connection.run_sync(_downgrade, revision)
        await connection.commit()


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", "penstock.brain.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection, revision: str, is_sqlite: bool) -> None:
    if not is_sqlite:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    config = configuration(connection)
    present = MigrationContext.configure(connection).get_current_revision()
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    if present is not None and present not in known:
        raise DatabaseError(
            f"the database has revision {present!r}, which this version does not know: "
            "run the version of penstock that made it, or a newer one"
        )
    # Alembic keeps what it does in globals, so two upgrades of one process must not meet in it.
    if present != (scripts.get_current_head() if revision == "head" else revision):
        command.upgrade(config, revision)


def _downgrade(connection: Connection, revision: str) -> None:
    command.downgrade(configuration(connection), revision)
