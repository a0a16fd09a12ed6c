"""Plans, from the store to the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.base.enums import Policy, Source, Stage, Trigger
from penstock.brain.control.optimizer import Run
from penstock.brain.plan_content import PlanContent
from penstock.brain.planning import Plan as PlanningPlan
from penstock.brain.service.plans import PlanOutcome
from penstock.brain.store.tables import PlanRow, RunRow
from penstock.wire.plans import (
    AlgorithmRef,
    AlgorithmRun,
    DataWorkerDemand,
    Evidence,
    Outcome,
    Plan,
    Prediction,
    RunOutcome,
    ShadowPlan,
)


def plan(row: PlanRow, outcome: PlanOutcome | None = None, shadows: Sequence[RunRow] = ()) -> Plan:
    """A stored plan on the wire."""
    return Plan(
        id=row.number,
        job_uid=row.job_uid,
        created_seconds=row.created_seconds,
        source=Source(row.source),
        policy=Policy(row.policy),
        stage=Stage(row.stage) if row.stage else None,
        trigger=Trigger(row.trigger) if row.trigger else None,
        algorithm=(
            AlgorithmRef(name=row.algorithm, version=row.algorithm_version)
            if row.algorithm
            else None
        ),
        reason=row.reason,
        message=row.message,
        held=row.held,
        author=row.author,
        scale=row.scale,
        outcome=(
            None
            if outcome is None
            else Outcome(
                settled_seconds=outcome.settled_seconds, steps_per_second=outcome.steps_per_second
            )
        ),
        shadows=[_shadow(run) for run in shadows],
        **_content(PlanContent.model_validate_json(row.content)),
    )


def proposed(
    number: int, uid: str, now: float, made: PlanningPlan, version: str, content: PlanContent
) -> Plan:
    """A plan that was only proposed, with the number that it would get."""
    return Plan(
        id=number,
        job_uid=uid,
        created_seconds=now,
        source=Source.BRAIN,
        stage=made.stage,
        trigger=Trigger.PROPOSED,
        algorithm=AlgorithmRef(name=made.algorithm, version=version),
        reason=made.reason,
        message=made.message,
        **_content(content),
    )


def proposed_run(run: Run, now: float) -> AlgorithmRun:
    """A run that was made for a proposal."""
    return AlgorithmRun(
        time_seconds=now,
        trigger=Trigger.PROPOSED,
        stage=run.stage,
        algorithm=AlgorithmRef(name=run.algorithm, version=run.version),
        shadow=run.shadow,
        outcome=RunOutcome(run.outcome.value),
        detail=run.detail[:1024],
        duration_seconds=run.duration_seconds,
    )


def stored_run(row: RunRow) -> AlgorithmRun:
    """A stored run on the wire."""
    return AlgorithmRun(
        time_seconds=row.time_seconds,
        trigger=Trigger(row.trigger),
        stage=Stage(row.stage),
        algorithm=AlgorithmRef(name=row.algorithm, version=row.algorithm_version),
        shadow=row.shadow,
        outcome=RunOutcome(row.outcome),
        detail=row.detail,
        duration_seconds=row.duration_seconds,
        plan=row.plan,
    )


def _content(content: PlanContent) -> dict[str, Any]:
    return {
        "roles": dict(content.roles),
        "shard_weights": dict(content.shard_weights),
        "data_workers": (
            DataWorkerDemand(**content.data_workers) if content.data_workers else None
        ),
        "prediction": Prediction(**content.prediction) if content.prediction else None,
        "evidence": Evidence(**content.evidence),
    }


def _shadow(run: RunRow) -> ShadowPlan:
    content = PlanContent.model_validate_json(run.content or "{}")
    return ShadowPlan(
        algorithm=AlgorithmRef(name=run.algorithm, version=run.algorithm_version),
        roles=dict(content.roles),
        prediction=Prediction(**content.prediction) if content.prediction else None,
        message=run.detail,
    )
