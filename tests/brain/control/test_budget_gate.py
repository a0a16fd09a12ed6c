"""A plan that the budget does not bear is recorded and refused, and the next algorithm is asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.control.optimizer import Case, Decision, Optimizer
from penstock.brain.executor import Outcome
from penstock.brain.executor.task import Task, TaskResult
from penstock.brain.history import HistoryRecord
from penstock.brain.planning import (
    Algorithm,
    Limits,
    Params,
    Plan,
    Prediction,
    RolePlan,
    RoleSpec,
)
from penstock.brain.registry import Registered, Registry
from penstock.brain.stages import Policy
from tests.brain.jobs import NOW, applied, job
from tests.brain.model.test_budget import SPENDING


def registered(name: str) -> Registered:
    algorithm: Algorithm[Params] = Algorithm(
        name=name,
        version="1",
        summary="For tests.",
        stages=frozenset({Stage.OPTIMIZE}),
        triggers=frozenset({Trigger.INTERVAL}),
        strategies=frozenset({Strategy.ALL_REDUCE}),
        params=Params,
        plan=lambda *_: None,
    )
    return Registered(algorithm=algorithm, params=Params())


class Answers:
    """Runs nothing: each algorithm answers with a number of workers, and what they make."""

    size = busy = 0

    def __init__(self, **answers: tuple[int, float]) -> None:
        self._answers = answers

    async def run(self, task: Task) -> TaskResult:
        name = task.entry.algorithm.name
        count, speed = self._answers[name]
        plan = Plan(
            stage=Stage.OPTIMIZE,
            algorithm=name,
            roles={Role.WORKER: RolePlan(replicas=count)},
            reason="Better",
            message="it is better",
            prediction=Prediction(steps_per_second=speed, error_steps_per_second=1.0),
        )
        return TaskResult(Outcome.PLANNED, 0.0, plan)

    async def configure(self, settings: Any) -> None:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError


def decide(amount: float | None) -> Decision:
    """Two workers at 10 steps/s for 20 EUR an hour and an hour to go; 10 EUR are spent."""
    record = HistoryRecord(
        now_seconds=NOW,
        plans=(applied(stage=Stage.CREATE, workers=2),),
        spending=SPENDING,
    )
    case = Case(
        job=replace(job(worker=RoleSpec(maximum=16)), budget=amount),
        limits=Limits(),
        record=record,
        trigger=Trigger.INTERVAL,
        policy=Policy(stages={Stage.OPTIMIZE: ("dear", "cheap")}),
        shard_weights={},
    )
    algorithms = Registry({name: registered(name) for name in ("dear", "cheap")})
    runner = Answers(dear=(8, 16.0), cheap=(3, 14.0))
    return asyncio.run(Optimizer(runner).decide(case, algorithms))


def test_the_runner_up_is_taken_and_the_refusal_has_the_figures() -> None:
    found = decide(35.0)
    assert [run.outcome for run in found.runs] == [Outcome.REFUSED, Outcome.PLANNED]
    assert found.runs[0].detail == (
        "budget: the job would cost 61.33 EUR (58.39 to 64.67), its budget is 35 EUR"
    )
    assert found.plan is not None
    assert found.plan.algorithm == "cheap"
    assert found.plan.message == (
        "it is better; by its end it costs 31.93 EUR (30.50 to 33.58) of 35 EUR"
    )
    assert found.plan.evidence.figures["budget"] == 35.0


def test_where_none_is_borne_nothing_changes() -> None:
    found = decide(25.0)
    assert [run.outcome for run in found.runs] == [Outcome.REFUSED, Outcome.REFUSED]
    assert found.plan is None


def test_without_a_budget_the_first_is_taken_as_it_is() -> None:
    found = decide(None)
    assert found.plan is not None
    assert (found.plan.algorithm, found.plan.message) == ("dear", "it is better")
