"""Averages are weighted, peaks are peaks, and the store stays as small as promised."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from penstock.base.enums import JobPhase, Role
from penstock.brain.configuration import BrainSettings, RetentionSettings
from penstock.brain.model.rollups import RoleUse, Rollup, dump_roles, load_roles, merge, start_of
from penstock.brain.rank_columns import pack, rank_samples, unpack
from penstock.brain.store.tables import JobRow, PlanRow, RollupRow, SampleRow, UsageRow
from tests.brain.brains import START, Clock, open_brain, reading, registration

MINUTE_START = start_of(START, 600) + 600


def rollup(speed: float, seconds: float = 15.0, *, step: int = 0, memory: float = 1.0) -> Rollup:
    return Rollup(
        samples=1,
        seconds=seconds,
        step=step,
        epoch=0,
        steps_per_second=speed,
        samples_per_second=0.0,
        world_size=step,
        received_seconds=0.0,
        roles={"worker": RoleUse(2, 1000.0, 600.0, memory, 2 * memory)},
    )


def test_means_are_weighted_by_time_and_memory_is_the_peak() -> None:
    merged = merge([rollup(10, 10, step=1, memory=5), rollup(40, 20, step=3, memory=2)])
    assert merged.steps_per_second == pytest.approx(30)
    assert (merged.step, merged.world_size, merged.samples) == (3, 3, 2)
    assert merged.roles["worker"].peak_memory_bytes == 5


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0.1, 60)), min_size=1, max_size=30))
def test_a_mean_lies_between_its_values_and_order_does_not_matter(
    values: list[tuple[float, float]],
) -> None:
    rows = [rollup(speed, seconds) for speed, seconds in values]
    merged = merge(rows)
    speeds = [speed for speed, _ in values]
    assert min(speeds) - 1e-6 <= merged.steps_per_second <= max(speeds) + 1e-6
    assert merge(reversed(rows)).steps_per_second == pytest.approx(merged.steps_per_second)
    (kept,) = load_roles(dump_roles(merged.roles)).values()
    assert kept.milli_cpu == pytest.approx(merged.roles["worker"].milli_cpu, abs=0.05)
    assert kept.peak_memory_bytes == 1


RANKS = st.integers(0, 4095)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(Role),
        st.lists(
            st.tuples(RANKS, st.integers(0, 10**6), st.integers(0, 2**50)), unique_by=lambda t: t[0]
        ),
        max_size=4,
    )
)
def test_packed_ranks_come_back_as_they_were(
    roles: dict[Role, list[tuple[int, int, int]]],
) -> None:
    columns = {
        role: {
            "rank": [rank for rank, _, _ in rows],
            "milli_cpu": [cpu for _, cpu, _ in rows],
            "memory_bytes": [memory for _, _, memory in rows],
        }
        for role, rows in roles.items()
    }
    assert unpack(pack(columns)) == columns
    for role, rows in roles.items():
        samples = rank_samples(columns[role])
        assert {rank: int(sample.milli_cpu) for rank, sample in samples.items()} == {
            rank: cpu for rank, cpu, _ in rows
        }


def test_what_is_not_packed_is_refused() -> None:
    with pytest.raises(ValueError, match="version"):
        unpack(b"{}")


def test_twenty_ranks_take_a_few_hundred_bytes() -> None:
    columns = {
        "rank": list(range(20)),
        "milli_cpu": [1000 + 37 * rank for rank in range(20)],
        "memory_bytes": [2**30 + 12_345_678 * rank for rank in range(20)],
    }
    assert len(pack({Role.WORKER: columns})) < 400


def test_minutes_and_ten_minutes_are_summed_up_and_late_samples_are_added(
    database_url: str,
) -> None:
    async def run() -> None:
        clock = Clock(MINUTE_START)
        async with open_brain(database_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            for index in range(40):
                clock.now = MINUTE_START + index * 15 + 1
                await brain.samples.add(
                    "uid-1", [reading(clock.now, workers=2, speed=index // 4, step=index)]
                )
            clock.advance(30)
            await brain.sweeper.sweep()
            minutes = await brain.samples.rollups(
                "uid-1", 60, start=None, end=None, after=None, limit=99
            )
            assert [row.steps_per_second for row in minutes] == list(range(10))
            assert {row.samples for row in minutes} == {4}
            roles = load_roles(minutes[3].roles)
            assert roles["worker"].milli_cpu == 800

            await brain.samples.add("uid-1", [reading(MINUTE_START + 5, speed=100)])
            clock.advance(60)
            await brain.sweeper.sweep()
            (first, *_) = await brain.samples.rollups(
                "uid-1", 60, start=None, end=None, after=None, limit=99
            )
            assert (first.samples, first.steps_per_second) == (5, 20)

            clock.advance(120)
            await brain.sweeper.sweep()
            (ten,) = await brain.samples.rollups(
                "uid-1", 600, start=None, end=None, after=None, limit=99
            )
            assert ten.start_seconds == MINUTE_START
            # 9 minutes of 4 samples, and one of 5.
            assert ten.samples == 41

    asyncio.run(run())


def test_sweeping_again_or_in_another_brain_changes_nothing(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(MINUTE_START)
        async with open_brain(sqlite_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            for _ in range(8):
                clock.advance(15)
                await brain.samples.add("uid-1", [reading(clock.now)])
            clock.advance(5)
            await brain.sweeper.sweep()
            before = await brain.samples.rollups(
                "uid-1", 60, start=None, end=None, after=None, limit=99
            )
            async with open_brain(sqlite_url, clock=clock) as other:
                await other.sweeper.sweep()
            await brain.sweeper.sweep()
            after = await brain.samples.rollups(
                "uid-1", 60, start=None, end=None, after=None, limit=99
            )
            assert [row.model_dump() for row in after] == [row.model_dump() for row in before]

    asyncio.run(run())


def test_what_has_been_kept_long_enough_goes_and_the_store_stays_bounded(
    database_url: str,
) -> None:
    async def run() -> None:
        clock = Clock(MINUTE_START)
        keep = RetentionSettings(
            raw_seconds=1800, minute_seconds=2400, ten_minute_seconds=3600, run_seconds=2400
        )
        async with open_brain(
            database_url, clock=clock, settings=BrainSettings(retention=keep)
        ) as brain:
            await brain.jobs.register(registration())
            await brain.jobs.register(registration("old", name="old"))
            await brain.jobs.finish("old", JobPhase.SUCCEEDED, "")

            async def count(table: type) -> int:
                async with brain.database.read() as session:
                    return await session.scalar(select(func.count()).select_from(table)) or 0

            most = 0
            for _ in range(80):  # minutes: twenty more than anything is kept
                for _ in range(2):
                    clock.advance(30)
                    await brain.samples.add("uid-1", [reading(clock.now, interval=30)])
                await brain.sweeper.sweep()
                most = max(most, await count(SampleRow) + await count(RollupRow))
            assert await count(SampleRow) <= 1800 / 30 + 2
            assert await count(RollupRow) <= 40 + 6 + 2
            assert most <= 60 + 40 + 6 + 6
            assert await count(JobRow) == 1  # the finished one went with its plans
            assert await count(PlanRow) == 1

    asyncio.run(run())


def test_a_long_life_is_remembered_by_its_minutes(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(MINUTE_START)
        keep = RetentionSettings(raw_seconds=1800)
        async with open_brain(
            sqlite_url, clock=clock, settings=BrainSettings(retention=keep)
        ) as brain:
            await brain.jobs.register(registration())
            for minute in range(120):
                clock.advance(60)
                workers = 6 if minute < 100 else 2  # the last raw samples show the short end only
                await brain.samples.add(
                    "uid-1", [reading(clock.now, workers=workers, milli_cpu=500, interval=60)]
                )
                if minute % 10 == 0:
                    await brain.sweeper.sweep()
            await brain.sweeper.sweep()
            await brain.jobs.finish("uid-1", JobPhase.SUCCEEDED, "")
            async with brain.database.read() as session:
                usage = (await session.scalars(select(UsageRow))).one()
            assert usage.replicas == 6
            assert usage.milli_cpu == pytest.approx(3000, rel=0.01)

    asyncio.run(run())
