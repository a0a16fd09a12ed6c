"""Group commit: many batches in one transaction, and a bad one spoils none but itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from penstock.brain.errors import JobNotFoundError
from penstock.brain.service import sample_writer as samplewriter
from penstock.brain.service.sample_writer import Batch, OverloadedError, SampleWriter
from penstock.brain.service.samples import _row
from penstock.brain.store.jobs import JobProgress
from tests.brain.brains import START, open_brain, reading, registration


def batch(uid: str, *times: float) -> Batch:
    rows = [_row(uid, reading(time), 0.0, time) for time in times]
    return Batch(uid, rows, [], JobProgress(uid=uid, now=max(times), at=max(times), step=1))


def test_batches_that_wait_share_a_transaction(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            for index in range(5):
                await brain.jobs.register(registration(f"uid-{index}", name=f"job-{index}"))
            writer = SampleWriter(brain.database)
            groups: list[int] = []
            write = writer._write

            async def counted(group: Any) -> Any:
                groups.append(len(group))
                return await write(group)

            writer._write = counted  # type: ignore[method-assign]  # counts what goes through
            results = await asyncio.gather(
                *(writer.write(batch(f"uid-{n % 5}", START + n)) for n in range(100))
            )
            assert [result.accepted for result in results] == [1] * 100
            assert sum(groups) == 100
            assert len(groups) <= 3

    asyncio.run(run())


def test_an_unknown_job_in_a_group_is_refused_alone(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            await brain.jobs.register(registration())
            writer = SampleWriter(brain.database)
            good, bad, again = await asyncio.gather(
                writer.write(batch("uid-1", START)),
                writer.write(batch("nobody", START)),
                writer.write(batch("uid-1", START)),
                return_exceptions=True,
            )
            assert isinstance(bad, JobNotFoundError)
            accepted = [good, again]
            # Neither of the two is an error.
            assert sorted(each.accepted for each in accepted) == [0, 1]  # type: ignore[union-attr]

    asyncio.run(run())


def test_a_batch_that_breaks_the_transaction_breaks_no_other(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration())
            poison = batch("uid-1", START + 1)
            poison = Batch("uid-1", [{**poison.samples[0], "step": None}], [], poison.progress)
            writer = SampleWriter(brain.database)
            results = await asyncio.gather(
                writer.write(batch("uid-1", START)),
                writer.write(poison),
                writer.write(batch("uid-1", START + 2)),
                return_exceptions=True,
            )
            assert isinstance(results[1], IntegrityError)
            rows = await brain.samples.page("uid-1", start=None, end=None, after=None, limit=9)
            assert [row.time_seconds for row in rows] == [START, START + 2]

    asyncio.run(run())


def test_too_many_are_told_to_come_again(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplewriter, "MOST_WAITING", 10)

    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration())
            writer = SampleWriter(brain.database)
            results = await asyncio.gather(
                *(writer.write(batch("uid-1", START + n)) for n in range(30)),
                return_exceptions=True,
            )
            refused = [each for each in results if isinstance(each, OverloadedError)]
            assert len(refused) == 20
            assert sum(1 for each in results if not isinstance(each, Exception)) == 10

    asyncio.run(run())
