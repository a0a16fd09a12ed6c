"""A registered job has a plan, or says why it has none."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.enums import JobPhase, Optimize
from penstock.brain.errors import JobConflictError, JobFinishedError, JobNotFoundError
from penstock.brain.planning import Signature
from tests.brain.brains import Clock, open_brain, reading, registration


def test_the_first_plan_exists_when_registering_returns(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            row = await brain.jobs.register(registration())
            assert row.current_plan == 1
            assert row.message == ""
            plan = (await brain.plans.current("uid-1")).row
            assert (plan.stage, plan.algorithm, plan.trigger) == (
                "Create",
                "cold_create",
                "Created",
            )

    asyncio.run(run())


def test_registering_again_changes_the_description_and_makes_no_second_plan(
    database_url: str,
) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            await brain.jobs.register(registration(most=4))
            row = await brain.jobs.register(registration(most=8))
            assert row.plan_count == 1
            assert '"maximum":8' in row.description

    asyncio.run(run())


def test_fifty_concurrent_registrations_make_one_plan(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            rows = await asyncio.gather(*(brain.jobs.register(registration()) for _ in range(50)))
            assert {row.current_plan for row in rows} == {1}
            assert len(await brain.plans.page("uid-1", after=0, limit=10)) == 1

    asyncio.run(run())


def test_a_uid_cannot_be_taken_over_by_another_job(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration(name="one"))
            with pytest.raises(JobConflictError, match="'two'"):
                await brain.jobs.register(registration(name="two"))

    asyncio.run(run())


def test_a_manual_job_gets_no_plan(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            row = await brain.jobs.register(registration(optimize=Optimize.MANUAL))
            assert row.current_plan is None

    asyncio.run(run())


def test_a_failed_first_plan_is_explained_and_made_up_for_later(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            # One worker of the template's 500m does not fit into 100m.
            row = await brain.jobs.register(registration(limits={"cpu": "100m", "memory": "64Mi"}))
            if row.current_plan is None:
                assert row.message.startswith("no initial plan: ")
                assert "Refused" in row.message or "asked" in row.message
            row = await brain.jobs.register(registration(limits={"cpu": "4", "memory": "8Gi"}))
            assert row.current_plan is not None
            assert row.message == ""

    asyncio.run(run())


def test_finishing_stores_what_later_jobs_are_planned_from(database_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        signature = Signature(dataset="criteo")
        async with open_brain(database_url, clock=clock) as brain:
            await brain.jobs.register(registration("old", signature=signature))
            for _ in range(20):
                clock.advance(15)
                await brain.samples.add("old", [reading(clock.now, workers=3, milli_cpu=700)])
            await brain.jobs.finish("old", JobPhase.SUCCEEDED, "")
            await brain.jobs.register(registration("new", signature=signature))
            plan = (await brain.plans.current("new")).row
            assert plan.algorithm == "history_create"
            assert '"replicas":3' in plan.content

    asyncio.run(run())


def test_finishing_twice_alike_is_fine_and_otherwise_refused(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration())
            await brain.jobs.finish("uid-1", JobPhase.FAILED, "out of memory")
            row = await brain.jobs.finish("uid-1", JobPhase.FAILED, "again")
            assert row.message == "out of memory"
            with pytest.raises(JobFinishedError, match="Failed"):
                await brain.jobs.finish("uid-1", JobPhase.SUCCEEDED, "")
            assert (await brain.jobs.register(registration())).phase == "Failed"

    asyncio.run(run())


def test_unknown_jobs_are_named(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            with pytest.raises(JobNotFoundError, match="'nobody'"):
                await brain.jobs.get("nobody")
            with pytest.raises(JobNotFoundError):
                await brain.samples.add("nobody", [reading(1.0)])

    asyncio.run(run())


def test_pages_of_jobs_miss_none_and_repeat_none(database_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock) as brain:
            for index in range(23):
                await brain.jobs.register(registration(f"uid-{index:02d}", name=f"job-{index}"))
                clock.advance(index % 3)  # several were registered at the same moment
            seen: list[str] = []
            before = None
            while True:
                rows = await brain.jobs.page(
                    namespaces=None,
                    namespace=None,
                    phase=None,
                    user=None,
                    model=None,
                    since=None,
                    before=before,
                    limit=5,
                )
                if not rows:
                    break
                seen += [row.uid for row in rows]
                before = (rows[-1].registered_seconds, rows[-1].uid)
            assert sorted(seen) == [f"uid-{index:02d}" for index in range(23)]
            assert len(seen) == 23

    asyncio.run(run())
