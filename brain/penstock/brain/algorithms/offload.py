"""How many data workers a job should have, from a model of its input and not by trial.

Where `data_workers` takes the share of waiting for what is missing, this asks the model of
`penstock.throughput`: which resource binds, what a data worker would change, and whether not having
any is better (FastFlow, PVLDB 16(5), section 4: what, whether, how much). A job that waits for its
storage gets none. It answers only where a profile is there, of the job or of one of its kind, and
carries what it promises, so that a plan is compared with what then happened. Jobs that share
batches need the data workers of the fastest of them together, and each has a part of these.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.algorithms.data_workers import DataWorkerParams, last_demand, memory_of, room
from penstock.brain.algorithms.group_part import GroupPart, group_part
from penstock.brain.planning import (
    MAX_MESSAGE,
    Algorithm,
    DataWorkerDemand,
    Evidence,
    History,
    JobDescription,
    Limits,
    Plan,
    PlanReason,
    Prediction,
)
from penstock.brain.sizes import next_stage, pod_milli_cpu
from penstock.throughput.decision.in_job import JobDecision, decide_in_job


class OffloadParams(DataWorkerParams):
    """When a demand is changed."""

    least_gain: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Of the rate: more data workers than were demanded must promise that much more."""
    pause_seconds: Annotated[float, Field(ge=0)] = 120.0
    """A demand is not lowered sooner after it was planned, and so does not follow every epoch."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: OffloadParams
) -> Plan | None:
    """A demand for data workers; None without a profile, or where the demand is what it was."""
    profile = history.profile
    if profile is None or not history.plans:
        return None
    spec = job.role(Role.DATA_WORKER)
    decision = decide_in_job(profile, spec.most(params.most))
    size = pod_milli_cpu(spec.milli_cpu or params.milli_cpu, limits)
    part = group_part(history, job, decision.data_workers)
    wanted = min(part.own, spec.most(params.most), room(history, job, limits, size))
    before = last_demand(history)
    if before == (wanted, size) or (not wanted and (before is None or not before[0])):
        return None
    if before is not None and before[0] and not _worth_it(history, params, part, before[0], wanted):
        return None
    latest = history.samples[-4:]
    demand = DataWorkerDemand(
        replicas=wanted,
        milli_cpu=size,
        memory_bytes=memory_of(latest, job, limits, params),
    )
    steps = profile.batch_size * profile.processes
    expected = decision.promised if wanted == part.own else None
    return Plan(
        stage=next_stage(history),
        algorithm="offload",
        roles={},
        reason=PlanReason.PREDICTED_GAIN if wanted else PlanReason.DATA_STALL,
        message=f"{decision.why}{part.remark}{_next_best(decision)}"[:MAX_MESSAGE],
        evidence=Evidence(
            samples=len(latest),
            first_sample_seconds=latest[0].time_seconds if latest else None,
            last_sample_seconds=latest[-1].time_seconds if latest else None,
            figures={
                "stalled": profile.stalled,
                "rate": profile.rate.value * profile.processes,
                "rate_without": decision.without,
                "rate_promised": decision.promised.rate,
                "share": decision.share,
                "model_error": profile.model_error,
            },
        ),
        prediction=None
        if expected is None
        else Prediction(
            steps_per_second=expected.rate / steps,
            error_steps_per_second=(expected.high - expected.low) / 2 / steps,
        ),
        data_workers=demand,
    )


def _next_best(decision: JobDecision) -> str:
    """What else would have been made elsewhere, in words."""
    if decision.cuts is None or decision.cuts.runner_up is None:
        return f"; next best: {decision.runner_up}" if decision.runner_up else ""
    return f"; {decision.cuts.why}"


def _worth_it(
    history: History, params: OffloadParams, part: GroupPart, before: int, wanted: int
) -> bool:
    """Whether a demand for data workers is worth changing, beside those of others that serve it."""
    profile = history.profile
    assert profile is not None, "looked at before"
    if wanted < before:
        planned = max(one.applied_seconds for one in history.plans if one.data_workers is not None)
        return history.now_seconds - planned >= params.pause_seconds

    def rate(number: int) -> float:
        return decide_in_job(profile, number).promised.rate

    others = part.others
    return rate(wanted + others) >= (1 + params.least_gain) * rate(before + others)


ALGORITHM: Final = Algorithm(
    name="offload",
    version="1",
    summary="How many data workers a job should have, from a model of its input.",
    stages=frozenset({Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset({Trigger.DATA_STALL, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset(Strategy),
    params=OffloadParams,
    plan=plan,
)
