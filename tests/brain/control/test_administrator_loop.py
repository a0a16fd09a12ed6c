"""The loop: created, sampled, planned again, lost, and shared between two Brains."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from penstock.base.enums import Optimize, Strategy, Trigger
from penstock.brain.assembly import Brain
from penstock.brain.configuration import AdministratorSettings
from penstock.brain.control import administrator_loop
from penstock.brain.control.administrator_loop import Administrators
from penstock.brain.store.jobs import Jobs
from tests.brain.brains import Clock, open_brain, reading, registration

SETTINGS = AdministratorSettings()


def administrators(brain: Brain, clock: Clock, **settings: float) -> Administrators:
    own = SETTINGS.model_copy(update=settings)
    return Administrators(
        brain.database, brain.planner, own, uuid.uuid4().hex, clock, brain.metrics
    )


async def settle(loop: Administrators) -> None:
    busy = [each.busy for each in loop._jobs.values() if each.busy is not None]
    await asyncio.gather(*busy)


async def train(brain: Brain, clock: Clock, seconds: int, uid: str = "uid-1") -> None:
    """The job reports every 15 s and has as many workers as the plan says."""
    plan = (await brain.plans.current(uid)).row
    workers = 2 if '"replicas":2' in plan.content else 4 if '"replicas":4' in plan.content else 1
    for _ in range(0, seconds, 15):
        clock.advance(15)
        step = int(clock.now) % 1_000_000 * 10
        await brain.samples.add(uid, [reading(clock.now, workers=workers, step=step)])


def test_a_job_grows_by_what_it_measures(database_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock) as brain:
            loop = administrators(brain, clock)
            await brain.jobs.register(registration(most=4))
            stages = []
            for _ in range(12):
                await train(brain, clock, 75)
                await loop.tick()
                await settle(loop)
                current = (await brain.plans.current("uid-1")).row
                stages.append((current.number, current.stage))
            assert stages[-1] == (3, "Adjust")
            assert (2, "Optimize") in stages
            rows = await brain.plans.page("uid-1", after=0, limit=9)
            assert rows[1].settled_seconds is not None
            assert rows[1].settled_seconds > rows[1].created_seconds
            await loop.stop()

    asyncio.run(run())


def test_a_first_plan_with_servers_is_looked_at_every_minute(sqlite_url: str) -> None:
    """A fast job is measured after seconds, when it has too few samples to plan by."""

    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            loop = administrators(brain, clock)
            await brain.jobs.register(registration(strategy=Strategy.PARAMETER_SERVER))
            content = (await brain.plans.current("uid-1")).row.content
            assert '"ps"' in content
            looks = set()
            for step in range(1, 41):
                clock.advance(3)
                fast = reading(clock.now, step=100 * step, interval=3.0, servers=1)
                await brain.samples.add("uid-1", [fast])
                await loop.tick()
                await settle(loop)
                if loop._jobs:
                    looks.add(loop._jobs["uid-1"].memory.looked_seconds)
            assert (await brain.plans.current("uid-1")).row.number == 1
            assert len(looks - {None}) >= 2, "within two minutes"
            await loop.stop()

    asyncio.run(run())


def test_a_silent_job_is_lost_retires_and_comes_back(database_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock) as brain:
            loop = administrators(brain, clock)
            await brain.jobs.register(registration())
            await loop.tick()
            assert len(loop) == 1
            clock.advance(899)
            await loop.tick()
            assert (await brain.jobs.get("uid-1")).phase == "Active"
            clock.advance(10)
            await loop.tick()
            assert (await brain.jobs.get("uid-1")).phase == "Lost"
            assert len(loop) == 0
            await brain.samples.add("uid-1", [reading(clock.now)])
            assert (await brain.jobs.get("uid-1")).phase == "Active"
            clock.advance(6)
            await loop.tick()
            assert len(loop) == 1

    asyncio.run(run())


def test_a_job_whose_first_plan_failed_is_tried_again(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            loop = administrators(brain, clock)
            await brain.jobs.register(registration(optimize=Optimize.MANUAL))
            async with brain.database.write() as session:
                await Jobs(brain.database, session).register(registration(), clock.now)
            await loop.tick()
            await settle(loop)
            assert (await brain.jobs.get("uid-1")).current_plan == 1

    asyncio.run(run())


def test_two_brains_share_the_jobs_and_take_over_from_each_other(postgres_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with (
            open_brain(postgres_url, clock=clock) as first,
            open_brain(postgres_url, clock=clock) as second,
        ):
            for index in range(12):
                await first.jobs.register(registration(f"uid-{index}", name=f"job-{index}"))
            one, two = administrators(first, clock), administrators(second, clock)
            await asyncio.gather(one.tick(), two.tick())
            held = [set(one._held), set(two._held)]
            assert held[0] | held[1] == {f"uid-{index}" for index in range(12)}
            assert not held[0] & held[1]

            await one.stop()  # gives its jobs back
            clock.advance(6)
            await two.tick()
            assert set(two._held) == {f"uid-{index}" for index in range(12)}

    asyncio.run(run())


def test_all_jobs_of_a_brain_that_died_are_taken_over_however_many(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One claim takes a few jobs; the next looks take the rest at once, not a claim later."""
    monkeypatch.setattr(administrator_loop, "_MOST_MOVED", 4)

    async def run() -> None:
        clock = Clock()
        async with (
            open_brain(postgres_url, clock=clock) as first,
            open_brain(postgres_url, clock=clock) as second,
        ):
            for index in range(10):
                await first.jobs.register(registration(f"uid-{index}", name=f"job-{index}"))
            one = administrators(first, clock, lease_seconds=0.2)
            for _ in range(3):
                await one.tick()
            assert len(one._held) == 10

            two = administrators(second, clock, lease_seconds=0.2)
            async with asyncio.timeout(20):  # the leases run out by the clock of the database
                while not two._held:
                    await asyncio.sleep(0.05)
                    clock.advance(6)
                    await two.tick()
            await two.tick()
            await two.tick()
            assert len(two._held) == 10

    asyncio.run(run())


def test_a_brain_that_comes_back_gets_its_part_of_the_jobs(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others let it go, a few jobs at a time, and nothing moves once each has its own."""
    monkeypatch.setattr(administrator_loop, "_MOST_MOVED", 7)
    uids = {f"uid-{index}" for index in range(40)}

    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock) as brain:
            for index, uid in enumerate(sorted(uids)):
                await brain.jobs.register(registration(uid, name=f"job-{index}"))
            one = administrators(brain, clock)
            for _ in range(6):
                await one.tick()
            assert set(one._held) == uids

            two = administrators(brain, clock)
            for _ in range(20):
                clock.advance(3)
                await two.tick()
                await one.tick()
                assert not one._held & two._held
            assert one._held | two._held == uids
            assert 10 <= len(two._held) <= 30

            settled = [one._held, two._held]
            for _ in range(3):
                clock.advance(3)
                await two.tick()
                await one.tick()
            assert [one._held, two._held] == settled
            async with brain.database.read() as session:
                jobs = Jobs(brain.database, session)
                for loop in (one, two):  # nobody reads the jobs of others
                    assert {row.uid for row in await jobs.held_by(loop._holder)} == loop._held

            await one.stop()
            for _ in range(6):
                clock.advance(3)
                await two.tick()
            assert set(two._held) == uids

    asyncio.run(run())


def test_two_brains_that_plan_the_same_job_at_once_make_one_plan(postgres_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with (
            open_brain(postgres_url, clock=clock) as first,
            open_brain(postgres_url, clock=clock) as second,
        ):
            await first.jobs.register(registration(most=4))
            await train(first, clock, 120)

            await asyncio.gather(
                *(brain.planner.plan("uid-1", Trigger.INTERVAL) for brain in (first, second) * 10)
            )
            job = await first.jobs.get("uid-1")
            rows = await first.plans.page("uid-1", after=0, limit=50)
            assert job.plan_count == len(rows) == 2

    asyncio.run(run())
