"""The migrations make what the models say, can be undone, and can be run by two Brains at once."""

from __future__ import annotations

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from penstock.brain.store.database import Database, DatabaseError
from penstock.brain.store.schema import downgrade, upgrade
from penstock.brain.store.tables import METADATA


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, METADATA))


def _tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def test_up_makes_exactly_what_the_models_say(empty_database_url: str) -> None:
    async def run() -> None:
        database = Database(empty_database_url)
        await upgrade(database)
        async with database.engine.connect() as connection:
            assert await connection.run_sync(_differences) == []
        await database.close()

    asyncio.run(run())


def test_down_leaves_nothing_and_up_again_works(empty_database_url: str) -> None:
    async def run() -> None:
        database = Database(empty_database_url)
        await upgrade(database)
        await downgrade(database, "base")
        async with database.engine.connect() as connection:
            assert await connection.run_sync(_tables) <= {"alembic_version"}
        await upgrade(database)
        async with database.engine.connect() as connection:
            assert set(METADATA.tables) <= await connection.run_sync(_tables)
        await database.close()

    asyncio.run(run())


def test_two_brains_that_start_at_once_both_succeed(empty_database_url: str) -> None:
    async def run() -> None:
        first, second = Database(empty_database_url), Database(empty_database_url)
        if first.is_sqlite:
            await upgrade(first)  # one file, one machine: Brains there start one after the other
        await asyncio.gather(upgrade(first), upgrade(second))
        await first.close()
        await second.close()

    asyncio.run(run())


def test_database_of_a_newer_version_is_refused(empty_database_url: str) -> None:
    async def run() -> None:
        database = Database(empty_database_url)
        await upgrade(database)
        async with database.engine.begin() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        try:
            with pytest.raises(DatabaseError, match="9999"):
                await upgrade(database)
        finally:
            await database.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://x/y", "sqlite\\+aiosqlite or"),
        ("nonsense", "not a database URL"),
        ("sqlite+aiosqlite:///:memory:", "needs a file"),
        ("sqlite+aiosqlite:////no/such/folder/x.sqlite", "does not exist"),
    ],
)
def test_unusable_url_is_named_with_what_would_be_right(url: str, words: str) -> None:
    with pytest.raises(DatabaseError, match=words):
        Database(url)
