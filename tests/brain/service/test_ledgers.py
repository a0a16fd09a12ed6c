"""A ledger only ever moves forward."""

from __future__ import annotations

import asyncio

import pytest

from penstock.brain.errors import NoLedgerError, StaleLedgerError
from tests.brain.brains import open_brain, registration


def test_newer_replaces_older_is_refused_same_is_fine(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            await brain.jobs.register(registration())
            with pytest.raises(NoLedgerError):
                await brain.ledgers.get("uid-1")
            await brain.ledgers.put("uid-1", 5, b"five")
            await brain.ledgers.put("uid-1", 5, b"five")
            with pytest.raises(StaleLedgerError, match="greater than 5"):
                await brain.ledgers.put("uid-1", 5, b"other")
            with pytest.raises(StaleLedgerError):
                await brain.ledgers.put("uid-1", 4, b"four")
            await brain.ledgers.put("uid-1", 6, b"six")
            row = await brain.ledgers.get("uid-1")
            assert (row.sequence, row.content) == (6, b"six")

    asyncio.run(run())


def test_of_many_concurrent_ledgers_the_newest_stays(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            await brain.jobs.register(registration())
            await asyncio.gather(
                *(brain.ledgers.put("uid-1", n, b"%d" % n) for n in range(40)),
                return_exceptions=True,
            )
            row = await brain.ledgers.get("uid-1")
            assert (row.sequence, row.content) == (39, b"39")

    asyncio.run(run())
