"""Connections that the server has dropped, and what a transaction is needed for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from penstock.brain.store import database as store
from penstock.brain.store.database import Database

_OTHERS = text(
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


def run(url: str, act: Callable[[Database, Database], Awaitable[None]]) -> None:
    """Act on two databases of one URL, each with one connection."""

    async def main() -> None:
        ours, others = Database(url, pool_size=1), Database(url, pool_size=1)
        try:
            await act(ours, others)
        finally:
            await ours.close()
            await others.close()

    asyncio.run(main())


async def read(database: Database) -> int:
    async with database.read() as session:
        return int((await session.execute(text("SELECT 1"))).scalar_one())


async def drop(database: Database) -> None:
    """Have the server end all connections of others, as one that starts again does."""
    async with database.write() as session:
        assert (await session.execute(_OTHERS)).scalar_one() == 1


def test_a_connection_that_was_not_used_for_long_is_tried_first(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "UNUSED_SECONDS", 0.0)

    async def act(ours: Database, others: Database) -> None:
        assert await read(ours) == 1
        for _ in range(2):
            await drop(others)
            assert await read(ours) == 1

    run(postgres_url, act)


def test_one_in_steady_use_fails_once_and_is_replaced(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "UNUSED_SECONDS", 60.0)

    async def act(ours: Database, others: Database) -> None:
        assert await read(ours) == 1
        await drop(others)
        with pytest.raises(DBAPIError):
            await read(ours)
        assert await read(ours) == 1

    run(postgres_url, act)


def test_statements_that_read_need_no_transaction_and_pages_have_one(postgres_url: str) -> None:
    async def moments(database: Database, *, pages: bool) -> set[object]:
        found = set()
        async with database.read_pages() if pages else database.read() as session:
            for _ in range(2):
                asked = text("SELECT transaction_timestamp()")
                found.add((await session.execute(asked)).scalar_one())
        return found

    async def act(ours: Database, _others: Database) -> None:
        assert len(await moments(ours, pages=True)) == 1
        assert len(await moments(ours, pages=False)) == 2
        assert len(await moments(ours, pages=True)) == 1, "the connection is as it was"

    run(postgres_url, act)


def test_pages_are_streamed(database_url: str) -> None:
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
        "SELECT i FROM n"
    )

    async def act(ours: Database, _others: Database) -> None:
        async with ours.read_pages() as session:
            result = await session.stream(text(numbers))
            sizes = [len(part) async for part in result.partitions(400)]
        assert sizes == [400, 400, 200]

    run(database_url, act)
