"""What other nodes would do, with what the Brain knows of each job, as it goes over the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from penstock.api.present.forecasts import expected
from penstock.base.enums import Role
from penstock.brain.service.forecasts import Forecast
from penstock.brain.service.paces import Pace, Range
from penstock.scheduler.capacity.outlook import ClusterFigures, JobOutlook, Outlook
from penstock.scheduler.capacity.wire import resources
from penstock.scheduler.capacity.workload import Workload
from penstock.scheduler.objects import NOTHING, Amounts
from penstock.wire.what_if import (
    Between,
    ClusterSide,
    ClusterWhatIf,
    JobEffect,
    JobSide,
    JobWhatIf,
)

TRAINER: Final = "trainer"
OLD_SECONDS: Final = 120.0
"""A picture of the cluster older than that is said to be old."""

_WORKER: Final = Role.WORKER.in_names
_PS: Final = Role.PS.in_names
_ALWAYS: Final = (
    "pods are placed by the scheduler's rules; kube-scheduler may choose other nodes that fit",
    "preemption, spreading constraints, volumes and quotas are not looked at",
    "only pods that are there count: a job that would ask for more later is not told",
)
_BOUND: Final = (
    "speeds at numbers of workers that were not measured are bounds: more workers are taken to "
    "make no more per worker, and no less together, than now"
)

Priced = Callable[[int, int, int], float | None]
"""What so many milli-cores, bytes and accelerators cost in an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the Brain knows of a job; None: nothing."""

    pace: Pace | None = None
    forecast: Forecast | None = None


def effect(job: JobOutlook) -> JobEffect:
    """What the change does to a job on which it has an effect."""
    before, after = sum(job.before.values()), sum(job.after.values())
    trains_before, trains_after = _trains(job, job.before), _trains(job, job.after)
    if not trains_before and trains_after:
        return JobEffect.STARTS
    if trains_before and not trains_after:
        return JobEffect.STOPS if _trains(job, job.running) else JobEffect.WAITS
    if after > before:
        return JobEffect.GROWS
    return JobEffect.SHRINKS if after < before else JobEffect.MOVES


def _trains(job: JobOutlook, pods: Mapping[str, int]) -> bool:
    """Whether it has a worker, and its trainer where it has one."""
    has_trainer = TRAINER in job.running or TRAINER in job.waiting
    return bool(pods.get(_WORKER)) and (bool(pods.get(TRAINER)) or not has_trainer)


def answer(
    found: Outlook,
    workload: Workload,
    known: Mapping[str, Known],
    priced: Priced,
    currency: str | None,
    *,
    time: float,
    now: float,
    left_out: int,
) -> ClusterWhatIf:
    """The whole answer.

    Args:
        found: what the change would do.
        workload: the cluster now.
        known: by uid, of the jobs of which it was looked up.
        priced: the prices.
        currency: of the prices; None without.
        time: when the scheduler looked at the cluster.
        now: the present time.
        left_out: nodes and groups of pods that the scheduler did not send.
    """
    changed = [job for job in found.jobs if job.changes]
    jobs = [_job(job, workload, known.get(job.uid), priced) for job in changed]
    jobs.sort(key=lambda one: (list(JobEffect).index(one.effect), one.namespace, one.name))
    notes = [*_ALWAYS]
    if any(one.before.steps_per_second or one.after.steps_per_second for one in jobs):
        notes.append(_BOUND)
    if currency is None:
        notes.append("the Brain has no prices: set `prices` in its configuration")
    if found.others_lost != NOTHING:
        notes.append(
            f"pods of no job hold {found.others_lost.milli_cpu / 1000:g} cores of the nodes that "
            "go; where they go is not looked at"
        )
    if now - time > OLD_SECONDS:
        notes.append(f"the scheduler looked at the cluster {now - time:.0f} s ago")
    if left_out:
        notes.append(f"the cluster is too large: {left_out} nodes and groups of pods are left out")
    added = [one.node for one in found.change.added]
    return ClusterWhatIf(
        time=time,
        added=[one.name for one in added],
        removed=list(found.change.removed),
        shape=resources(added[0].allocatable) if added else None,
        before=_side(found.before),
        after=_side(found.after),
        jobs=jobs,
        unchanged_jobs=len(found.jobs) - len(changed),
        currency=currency,
        nodes_per_hour=_nodes_per_hour(found, workload, priced),
        notes=notes,
    )


def _job(job: JobOutlook, workload: Workload, known: Known | None, priced: Priced) -> JobWhatIf:
    about = workload.jobs.get(job.uid)
    pace = None if known is None else known.pace
    forecast = None if known is None else known.forecast
    does = effect(job)
    return JobWhatIf(
        uid=job.uid,
        namespace="" if about is None else about.namespace,
        name="" if about is None else about.name,
        effect=does,
        lost=dict(job.lost),
        before=_job_side(job, job.before, job.held_before, pace, priced),
        after=_job_side(job, job.after, job.held_after, pace, priced),
        forecast_seconds=None if forecast is None else expected(forecast.seconds),
        forecast_cost=None if forecast is None else expected(forecast.cost),
        note=_note(job, does, known),
    )


def _note(job: JobOutlook, does: JobEffect, known: Known | None) -> str:
    if known is None:
        return "not looked up: too many jobs change"
    if does is JobEffect.STARTS and known.pace is None:
        if known.forecast is None or known.forecast.seconds is None:
            return "no history: nothing like it has succeeded in four weeks"
        return ""
    if known.pace is None:
        return "no history: its speed has not been measured long enough"
    if job.before.get(_PS, 0) != job.after.get(_PS, 0):
        return "its speed with other parameter servers is not known"
    if known.pace.steps_left is None:
        return "it does not say how many steps it has: when it ends is not known"
    return ""


def _job_side(
    job: JobOutlook,
    pods: Mapping[str, int],
    held: Amounts,
    pace: Pace | None,
    priced: Priced,
) -> JobSide:
    hourly = _hourly(held, priced)
    speed = left = cost = None
    same_servers = pods.get(_PS, 0) == job.running.get(_PS, 0)
    if pace is not None and same_servers:
        trains = _trains(job, pods)
        speed = pace.at(pods.get(_WORKER, 0)) if trains else Range(0.0, 0.0, 0.0)
        if pace.steps_left is not None and trains:
            left = speed.into(pace.steps_left)
        if left is not None and hourly is not None:
            cost = left.times(hourly / 3600)
    return JobSide(
        pods=dict(pods),
        steps_per_second=_between(speed),
        remaining_seconds=_between(left),
        cost_per_hour=hourly,
        remaining_cost=_between(cost),
    )


def _nodes_per_hour(found: Outlook, workload: Workload, priced: Priced) -> float | None:
    there = {one.node.name: one.node.allocatable for one in workload.nodes}
    added = [_hourly(one.node.allocatable, priced) for one in found.change.added]
    removed = [_hourly(there[name], priced) for name in found.change.removed]
    if any(one is None for one in (*added, *removed)):
        return None
    return sum(one or 0.0 for one in added) - sum(one or 0.0 for one in removed)


def _hourly(amounts: Amounts, priced: Priced) -> float | None:
    accelerators = sum(count for _, count in amounts.accelerators)
    return priced(amounts.milli_cpu, amounts.memory_bytes, accelerators)


def _between(found: Range | None) -> Between | None:
    return None if found is None else Between(value=found.value, low=found.low, high=found.high)


def _side(figures: ClusterFigures) -> ClusterSide:
    return ClusterSide.model_validate(asdict(figures))
