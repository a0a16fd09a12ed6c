"""Bad algorithms are recorded and refused, and the last good plan stays; shadows only watch."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.assembly import check_algorithms
from penstock.brain.configuration import BrainSettings, ExecutorSettings
from penstock.brain.control.optimizer import with_gpu_figures
from penstock.brain.executor import Executor, Outcome
from penstock.brain.planning import Evidence, Plan, RolePlan
from penstock.brain.registry import Registry
from tests.brain.brains import Clock, open_brain, reading, registration
from tests.brain.executor.plugins import registered

ONLY_BAD = BrainSettings(policies={Strategy.ALL_REDUCE: dict.fromkeys(Stage, ("bad",))})


def registry(deed: str, **options: object) -> Registry:
    # Each test names its own fields.
    return Registry({"bad": registered(deed, **options)})  # type: ignore[arg-type]


def test_a_plan_beyond_the_job_is_refused_and_the_old_one_stays(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(
            sqlite_url, clock=clock, settings=ONLY_BAD, registry=registry("plan")
        ) as brain:
            await brain.jobs.register(registration(most=4))
            brain.algorithms._registry = registry("plan", replicas=5)
            decision = await brain.planner.plan("uid-1", Trigger.INTERVAL)
            assert [run.outcome for run in decision.runs] == [Outcome.REFUSED]
            assert "1 to 4" in decision.runs[0].detail
            assert (await brain.plans.current("uid-1")).row.number == 1
            (refused, made) = await brain.plans.runs("uid-1", before=None, limit=9)
            assert (refused.outcome, made.outcome) == ("Refused", "Planned")
            assert refused.content is not None  # what it wanted is kept

    asyncio.run(run())


@pytest.mark.slow
def test_whatever_a_plugin_does_is_recorded_and_the_last_good_plan_stays(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    wanted = {
        "raise": (Outcome.FAILED, "KeyError"),
        "nonsense": (Outcome.FAILED, "answered a dict"),
        "eat": (Outcome.FAILED, "MemoryError"),
        "die": (Outcome.CRASHED, "signal 11"),
        "hang": (Outcome.TIMED_OUT, "no answer within"),
    }

    async def run() -> None:
        bounds = ExecutorSettings(processes=1, timeout_seconds=40.0, memory_bytes=512 * 1024**2)
        executor = Executor(bounds)
        async with open_brain(
            sqlite_url, settings=ONLY_BAD, registry=registry("plan"), executor=executor
        ) as brain:
            await brain.jobs.register(registration(most=4))
            for deed, (outcome, words) in wanted.items():
                brain.algorithms._registry = registry(deed)
                if outcome is Outcome.TIMED_OUT:
                    await executor.configure(bounds.model_copy(update={"timeout_seconds": 2.0}))
                (made,) = (await brain.planner.plan("uid-1", Trigger.INTERVAL)).runs
                assert made.outcome is outcome
                assert words in made.detail
                assert (await brain.plans.current("uid-1")).row.number == 1
            rows = await brain.plans.runs("uid-1", before=None, limit=9)
            assert [row.outcome for row in rows[:-1]] == [
                str(outcome) for outcome, _ in reversed(wanted.values())
            ]

    asyncio.run(run())


def test_a_plan_says_what_the_gpus_did_before_it(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            await brain.jobs.register(registration())
            first = await brain.plans.current("uid-1")
            assert "gpu_utilization" not in first.row.content, "nothing is measured yet"
            for share in (0.2, 0.4):
                clock.advance(15)
                measured = reading(clock.now)
                columns = measured.roles[Role.WORKER] | {"gpus": [1], "gpu_utilization": [share]}
                await brain.samples.add("uid-1", [replace(measured, roles={Role.WORKER: columns})])
            record = (await brain.planner.load("uid-1", Trigger.INTERVAL)).case.record
            plan = Plan(
                stage=Stage.ADJUST,
                algorithm="a",
                roles={Role.WORKER: RolePlan(replicas=2)},
                reason="Because",
                message="of it",
            )
            said = with_gpu_figures(plan, record).evidence.figures
            assert said == {"worker_gpu_utilization": pytest.approx(0.3)}
            own = replace(plan, evidence=Evidence(figures={"worker_gpu_utilization": 1.0}))
            assert with_gpu_figures(own, record) == own
            bare = replace(record, samples=())
            assert with_gpu_figures(plan, bare) is plan

    asyncio.run(run())


def test_a_plan_that_changes_nothing_is_no_plan(sqlite_url: str) -> None:
    async def run() -> None:
        async with open_brain(sqlite_url, settings=ONLY_BAD, registry=registry("plan")) as brain:
            await brain.jobs.register(registration())
            for _ in range(5):
                await brain.planner.plan("uid-1", Trigger.INTERVAL)
            assert (await brain.jobs.get("uid-1")).plan_count == 1
            assert len(await brain.plans.runs("uid-1", before=None, limit=9)) == 1

    asyncio.run(run())


def test_a_shadow_is_recorded_beside_the_plan_and_never_applied(sqlite_url: str) -> None:
    async def run() -> None:

        entries = dict(check_algorithms(BrainSettings()).entries)
        entries["bad"] = registered("plan", shadow=True, replicas=3)
        async with open_brain(sqlite_url, registry=Registry(entries)) as brain:
            await brain.jobs.register(registration())
            detail = await brain.plans.detail("uid-1", 1)
            assert detail.row.algorithm == "cold_create"
            (shadow,) = detail.shadows
            assert (shadow.algorithm, shadow.outcome) == ("bad", "Planned")
            assert '"replicas":3' in (shadow.content or "")

    asyncio.run(run())


def test_a_failing_algorithm_is_passed_over(sqlite_url: str) -> None:
    async def run() -> None:

        entries = dict(check_algorithms(BrainSettings()).entries)
        entries["bad"] = registered("raise")
        settings = BrainSettings(
            policies={Strategy.ALL_REDUCE: {Stage.CREATE: ("bad", "cold_create")}}
        )
        async with open_brain(sqlite_url, settings=settings, registry=Registry(entries)) as brain:
            row = await brain.jobs.register(registration())
            assert row.current_plan == 1
            outcomes = [
                (run.algorithm, run.outcome)
                for run in await brain.plans.runs("uid-1", before=None, limit=9)
            ]
            assert sorted(outcomes) == [("bad", "Failed"), ("cold_create", "Planned")]

    asyncio.run(run())
