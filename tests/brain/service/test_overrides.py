"""People's overrides: applied, pinned, lifted, and never lost among many."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace

import pytest

from penstock.base.enums import JobPhase, Optimize, Policy, Role, Trigger
from penstock.base.targets import RoleTarget
from penstock.brain.errors import (
    IdempotencyConflictError,
    JobFinishedError,
    NoOverrideError,
    NoPlanError,
    PreconditionFailedError,
)
from penstock.brain.plan_check import PlanRefusedError
from penstock.brain.service.plans import (
    ClusterRefusedError,
    ClusterUnavailableError,
    OverrideRequest,
)
from penstock.brain.store.audit import Audit
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.tables import JobRow, PlanRow
from tests.brain.brains import Clock, open_brain, reading, registration


def override(replicas: int = 2, **changes: object) -> OverrideRequest:
    base = OverrideRequest(
        policy=Policy.APPLY,
        roles={Role.WORKER: RoleTarget(replicas=replicas)},
        reason="Override",
        message="",
        author="ada",
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # each test names its own fields


class Cluster:
    """A cluster that takes Scales, or does not."""

    def __init__(self) -> None:
        self.scales: dict[str, str] = {}
        self.error: Exception | None = None

    def name(self, job: JobRow, number: int) -> str:
        return f"{job.name}-user-{number}"

    def another_name(self, job: JobRow, number: int) -> str:
        return f"{self.name(job, number)}-{len(self.scales)}"

    async def write(self, job: JobRow, plan: PlanRow) -> None:
        if self.error is not None:
            raise self.error
        assert plan.scale is not None
        self.scales[plan.scale] = plan.content

    async def delete(self, job: JobRow, name: str) -> None:
        if self.error is not None:
            raise self.error
        self.scales.pop(name, None)


def test_forty_clients_that_compare_lose_no_update(database_url: str) -> None:
    """Each reads the plan and overrides it only if it has not changed, until it succeeds."""

    async def run() -> None:
        async with open_brain(database_url) as brain:
            await brain.jobs.register(registration(most=200))
            attempts = 0
            rng = random.Random(7)

            async def client(index: int) -> int:
                nonlocal attempts
                for tries in itertools.count():
                    attempts += 1
                    revision = (await brain.plans.current("uid-1")).revision
                    try:
                        made = await brain.plans.override(
                            "uid-1", override(index + 1, revision=revision, author=f"c{index}")
                        )
                    except PreconditionFailedError:
                        # As a client would; the more there are that try, the longer.
                        await asyncio.sleep(rng.uniform(0, min(0.2 * 2**tries, 5.0)))
                        continue
                    assert made.revision == revision + 1
                    return made.row.number
                raise AssertionError("it never ends without an answer")

            numbers = await asyncio.gather(*(client(index) for index in range(40)))
            assert sorted(numbers) == list(range(2, 42))
            rows = await brain.plans.page("uid-1", after=1, limit=200)
            assert {row.author for row in rows} == {f"c{index}" for index in range(40)}
            assert (await brain.jobs.get("uid-1")).revision == 41
            assert attempts >= 40

    asyncio.run(run())


def test_overrides_need_one_connection_each(database_url: str) -> None:
    """With one that needed another while it had one, as many as the pool has would block it."""

    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock, connections=1) as brain:
            await brain.jobs.register(registration(most=200))
            clock.advance(60)  # what is known of the nodes is too old
            async with asyncio.timeout(10):
                await brain.plans.override("uid-1", override(3))

    asyncio.run(run())


def test_the_brain_loses_against_an_override_that_came_while_it_thought(
    database_url: str,
) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            await brain.jobs.register(registration(optimize=Optimize.MANUAL))
            job = registration(optimize=Optimize.AUTO)
            async with brain.database.write() as session:
                await Jobs(brain.database, session).register(job, 1.0)
            loaded = await brain.planner.load("uid-1", Trigger.CREATED)
            await brain.plans.override("uid-1", override(3))
            decision = await brain.planner._optimizer.decide(loaded.case, brain.algorithms.registry)
            assert decision.plan is not None
            await brain.planner._store("uid-1", loaded, decision)
            assert (await brain.plans.current("uid-1")).row.author == "ada"
            assert (await brain.jobs.get("uid-1")).plan_count == 1

    asyncio.run(run())


def test_the_same_key_does_it_once_and_another_body_is_refused(database_url: str) -> None:
    async def run() -> None:
        async with open_brain(database_url) as brain:
            await brain.jobs.register(registration())
            made = await asyncio.gather(
                *(
                    brain.plans.override("uid-1", override(2, idempotency_key="k"))
                    for _ in range(20)
                ),
                return_exceptions=True,
            )
            numbers = {each.row.number for each in made if not isinstance(each, BaseException)}
            assert numbers == {2}
            again = await brain.plans.override("uid-1", override(2, idempotency_key="k"))
            assert again.row.number == 2
            with pytest.raises(IdempotencyConflictError, match="'k'"):
                await brain.plans.override("uid-1", override(3, idempotency_key="k"))
            assert (await brain.jobs.get("uid-1")).plan_count == 2

    asyncio.run(run())


def test_what_the_job_does_not_allow_is_refused_with_the_rule(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration(most=4, limits={"cpu": "4"}))
            with pytest.raises(PlanRefusedError, match=r"replicas = 9.*1 to 4"):
                await brain.plans.override("uid-1", override(9))
            big = {
                Role.WORKER: RoleTarget.model_validate({"replicas": 4, "resources": {"cpu": "3"}})
            }
            with pytest.raises(PlanRefusedError, match="limit is 4000"):
                await brain.plans.override("uid-1", override(roles=big))
            assert (await brain.jobs.get("uid-1")).plan_count == 1

    asyncio.run(run())


def test_under_a_pin_the_brain_plans_on_but_is_held(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            await brain.plans.override("uid-1", override(1, policy=Policy.PIN))
            for _ in range(8):
                clock.advance(15)
                await brain.samples.add("uid-1", [reading(clock.now)])
            for _ in range(3):
                await brain.planner.plan("uid-1", Trigger.INTERVAL)
            rows = await brain.plans.page("uid-1", after=0, limit=20)
            assert [row.held for row in rows] == [False, False, True]
            assert (await brain.plans.current("uid-1")).row.number == 2

            returned = await brain.plans.lift("uid-1", "grace")
            assert returned is not None
            assert returned.row.reason == "OverrideLifted"
            assert '"replicas":2' in returned.row.content  # what it wanted all the time
            assert (await brain.jobs.get("uid-1")).pinned_plan is None

    asyncio.run(run())


def test_lifting_where_the_brain_never_planned_leaves_no_plan(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration(optimize=Optimize.MANUAL))
            with pytest.raises(NoOverrideError):
                await brain.plans.lift("uid-1", "ada")
            await brain.plans.override("uid-1", override(2))
            assert await brain.plans.lift("uid-1", "ada") is None
            with pytest.raises(NoPlanError):
                await brain.plans.current("uid-1")

    asyncio.run(run())


def test_an_override_is_written_as_a_scale_and_deleted_when_lifted(sqlite_url: str) -> None:
    async def run() -> None:
        cluster = Cluster()
        async with open_brain(sqlite_url, scales=cluster) as brain:
            await brain.jobs.register(registration())
            made = await brain.plans.override("uid-1", override(2, policy=Policy.PIN))
            assert made.row.scale == "job-user-2"
            assert set(cluster.scales) == {"job-user-2"}
            await brain.plans.lift("uid-1", "ada")
            assert cluster.scales == {}

    asyncio.run(run())


def test_a_cluster_that_is_away_gets_the_scale_later(sqlite_url: str) -> None:
    async def run() -> None:
        cluster = Cluster()
        async with open_brain(sqlite_url, scales=cluster) as brain:
            await brain.jobs.register(registration())
            cluster.error = ClusterUnavailableError("no route")
            made = await brain.plans.override("uid-1", override(2, policy=Policy.PIN))
            assert made.row.scale == "job-user-2"
            await brain.plans.write_scales()
            assert cluster.scales == {}
            with pytest.raises(ClusterUnavailableError):
                await brain.plans.lift("uid-1", "ada")
            assert (await brain.plans.current("uid-1")).row.number == 2
            cluster.error = None
            await brain.plans.write_scales()
            assert set(cluster.scales) == {"job-user-2"}

    asyncio.run(run())


def test_a_scale_that_the_cluster_refuses_is_left_to_the_trainer(sqlite_url: str) -> None:
    async def run() -> None:
        cluster = Cluster()
        cluster.error = ClusterRefusedError("403: forbidden")
        async with open_brain(sqlite_url, scales=cluster) as brain:
            await brain.jobs.register(registration())
            made = await brain.plans.override("uid-1", override(2))
            assert made.row.scale is None
            assert (await brain.plans.current("uid-1")).row.scale is None

    asyncio.run(run())


def test_every_change_by_a_person_leaves_a_row(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration())
            await brain.plans.override("uid-1", override(2, policy=Policy.PIN))
            await brain.plans.lift("uid-1", "grace")
            await brain.algorithms.change("scale_allreduce", actor="linus", shadow=True)
            async with brain.database.read() as session:
                rows = await Audit(session).page(before=None, limit=10)
            assert [(row.actor, row.action) for row in rows] == [
                ("linus", "configure-algorithm"),
                ("grace", "lift-override"),
                ("ada", "pin"),
            ]

    asyncio.run(run())


def test_a_finished_job_takes_no_override(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url) as brain:
            await brain.jobs.register(registration())
            await brain.jobs.finish("uid-1", JobPhase.SUCCEEDED, "")
            with pytest.raises(JobFinishedError):
                await brain.plans.override("uid-1", override(2))

    asyncio.run(run())
