"""What the planner hands to algorithms: limits, settled plans, weights and demands."""

from __future__ import annotations

import asyncio

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.control.optimizer import changes
from penstock.brain.planning import AppliedPlan, DataWorkerDemand, History, Plan, RolePlan
from penstock.brain.service.cluster import Snapshot
from tests.brain.brains import START, Clock, open_brain, reading, registration
from tests.brain.service.test_overrides import override


def snapshot(*cores: int, cordoned: bool = False) -> Snapshot:
    nodes = [
        {"name": f"n{core}", "milli_cpu": core * 1000, "fragmentation": 0.0, "cordoned": cordoned}
        for core in cores
    ]
    return Snapshot(time_seconds=START, stranded_gpus=0, stranded_cpu_cores=0, nodes=nodes)


def test_no_pod_is_larger_than_the_largest_node(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            job = registration(strategy=Strategy.PARAMETER_SERVER, limits={"cpu": "200"})

            async def pod_milli_cpu() -> int | None:
                return brain.planner.limits_of(
                    job, await brain.planner.largest_node()
                ).pod_milli_cpu

            assert await pod_milli_cpu() == 32_000
            await brain.cluster.put(snapshot(8, 16), [])
            clock.advance(31)
            assert await pod_milli_cpu() == 16_000
            await brain.jobs.register(job)
            plan = (await brain.plans.current("uid-1")).row
            assert '"cpu":"16"' in plan.content
            clock.advance(31)
            await brain.cluster.put(snapshot(64, cordoned=True), [])
            assert await pod_milli_cpu() == 32_000

    asyncio.run(run())


def test_a_plan_settles_when_all_its_pods_report_and_never_before(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            await brain.jobs.register(registration())

            async def settled() -> list[float | None]:
                record = (await brain.planner.load("uid-1", Trigger.INTERVAL)).case.record
                return [plan.settled_seconds for plan in record.plans]

            assert await settled() == [None]
            clock.advance(15)
            await brain.samples.add("uid-1", [reading(clock.now, workers=1)])
            first = clock.now
            assert await settled() == [first]
            clock.advance(15)
            await brain.plans.override("uid-1", override(3))
            for workers in (1, 2, 2):
                clock.advance(15)
                await brain.samples.add("uid-1", [reading(clock.now, workers=workers)])
            assert await settled() == [first, None]
            clock.advance(15)
            await brain.samples.add("uid-1", [reading(clock.now, workers=3)])
            assert await settled() == [first, clock.now]

    asyncio.run(run())


def history(*plans: AppliedPlan) -> History:
    return History(now_seconds=1.0, plans=plans)


def applied(**changes: object) -> AppliedPlan:
    roles = {Role.WORKER: RolePlan(replicas=2)}
    # Each test names its own fields.
    return AppliedPlan(applied_seconds=0.0, roles=roles, stage=Stage.CREATE, **changes)  # type: ignore[arg-type]


def plan(**changes: object) -> Plan:
    base: dict[str, object] = {"roles": {}, "reason": "DataStall", "message": "m"}
    # Each test names its own fields.
    return Plan(stage=Stage.ADJUST, algorithm="a", **{**base, **changes})  # type: ignore[arg-type]


def test_saying_the_same_again_is_no_change() -> None:
    demand = DataWorkerDemand(replicas=2, milli_cpu=1000)
    more = DataWorkerDemand(replicas=3, milli_cpu=1000)
    known = history(applied(data_workers=demand), applied())
    assert not changes(plan(data_workers=demand), known, {})
    assert changes(plan(data_workers=more), known, {})
    assert not changes(plan(shard_weights={1: 0.5}), known, {1: 0.5})
    assert changes(plan(shard_weights={1: 0.5}), known, {})
    same = {Role.WORKER: RolePlan(replicas=2)}
    assert not changes(plan(roles=same), known, {})
    assert changes(plan(roles=same), known, {1: 0.5})  # the weight goes
    assert changes(plan(roles={Role.WORKER: RolePlan(replicas=3)}), known, {})
