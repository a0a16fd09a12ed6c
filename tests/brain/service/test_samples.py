"""Samples come late, twice, out of order and by other clocks, and none is lost."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.enums import EventKind, JobPhase, Role, Trigger
from penstock.brain.errors import JobFinishedError
from penstock.brain.planning import JobEvent
from tests.brain.brains import START, Clock, open_brain, reading, registration


def test_a_batch_sent_again_stores_nothing_twice(database_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            batch = [reading(START + index) for index in range(50)]
            first = await brain.samples.add("uid-1", batch)
            second = await brain.samples.add("uid-1", [*batch, reading(START + 50)])
            assert (first.accepted, first.repeated) == (50, 0)
            assert (second.accepted, second.repeated) == (1, 50)

    asyncio.run(run())


def test_a_hundred_concurrent_batches_are_all_stored(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url, clock=Clock()) as brain:
            await brain.jobs.register(registration())
            await asyncio.gather(
                *(brain.samples.add("uid-1", [reading(START + index)]) for index in range(100))
            )
            rows = await brain.samples.page("uid-1", start=None, end=None, after=None, limit=500)
            assert [row.time_seconds for row in rows] == [START + index for index in range(100)]

    asyncio.run(run())


def test_the_job_shows_the_newest_sample_whatever_the_order(database_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            await brain.samples.add("uid-1", [reading(START, step=100, workers=2)])
            clock.advance(5)
            await brain.samples.add("uid-1", [reading(START - 30, step=70, workers=1)])
            row = await brain.jobs.get("uid-1")
            assert (row.step, row.world_size) == (100, 2)
            assert row.last_seen_seconds == START + 5

    asyncio.run(run())


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_an_hour_of_skew_is_seen_and_both_times_are_kept(sqlite_url: str, skew: float) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            clock.advance(60)
            theirs = clock.now + skew
            await brain.samples.add("uid-1", [reading(theirs)], sent_seconds=theirs)
            (row,) = await brain.samples.page("uid-1", start=None, end=None, after=None, limit=9)
            assert row.time_seconds == theirs
            assert row.received_seconds == clock.now
            assert row.at_seconds == pytest.approx(clock.now)
            record = (await brain.planner.load("uid-1", Trigger.INTERVAL)).case.record
            assert record.samples[0].at_seconds == pytest.approx(clock.now)

    asyncio.run(run())


def test_a_sample_from_the_future_is_taken_as_skew_even_without_the_senders_clock(
    sqlite_url: str,
) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            await brain.samples.add("uid-1", [reading(START + 3600)])
            (row,) = await brain.samples.page("uid-1", start=None, end=None, after=None, limit=9)
            assert row.at_seconds == START

    asyncio.run(run())


def test_buffered_samples_keep_their_times(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            clock.advance(1200)
            await brain.samples.add(
                "uid-1", [reading(START + 15)], sent_seconds=clock.now, dropped=7
            )
            (row,) = await brain.samples.page("uid-1", start=None, end=None, after=None, limit=9)
            assert row.at_seconds == START + 15
            assert (await brain.jobs.get("uid-1")).samples_dropped == 7

    asyncio.run(run())


def test_nothing_is_taken_after_the_end(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration())
            await brain.jobs.finish("uid-1", JobPhase.SUCCEEDED, "")
            with pytest.raises(JobFinishedError, match="no samples"):
                await brain.samples.add("uid-1", [reading(START)])

    asyncio.run(run())


def test_an_event_sent_again_is_one_event(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url, clock=Clock()) as brain:
            await brain.jobs.register(registration())
            event = JobEvent(
                time_seconds=START, kind=EventKind.OUT_OF_MEMORY, role=Role.WORKER, rank=1
            )
            for _ in range(3):
                await brain.samples.add("uid-1", [], [event])
            record = (await brain.planner.load("uid-1", Trigger.INTERVAL)).case.record
            assert record.events == (event,)
            assert (await brain.jobs.get("uid-1")).out_of_memory_seconds == START

    asyncio.run(run())
