"""What past jobs would have waited for, as it goes over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Final

from penstock.brain.service.recorded import Recorded, TrainedJob
from penstock.scheduler.capacity.comparison import Comparison
from penstock.scheduler.capacity.replay import RecordedJob, RecordedPods
from penstock.wire.replays import ClusterReplay, ReplayedFigure, Spread

_ALWAYS: Final = (
    "both columns are replays: on the nodes of now, with what pods of no job hold of them now",
    "all pods are placed by the scheduler's rules; kube-scheduler may choose other nodes that fit",
    "a job's pods start together; the one that has waited longest is tried first",
    "a job that does not fit holds up nobody",
    "priorities, quotas, selectors and preemption are not recorded",
    "a job trains as long as it did, with the mean of the pods that it had, wherever they are",
    "pods without accelerators keep off tainted nodes, and others do not",
    "a job comes when its trainer is there: what it waited before that is not recorded",
)
_FIGURES: Final = {
    "mean_wait": "mean_wait_seconds",
    "median_wait": "median_wait_seconds",
    "most_wait": "most_wait_seconds",
    "waited": "waited_jobs",
    "mean_completion": "mean_completion_seconds",
    "median_completion": "median_completion_seconds",
    "stranded_accelerators": "stranded_accelerators",
    "free_accelerators": "free_accelerators",
}
"""Of a comparison, and what they are called on the wire."""


def recorded_job(job: TrainedJob, start: float) -> RecordedJob:
    """A job as the replay takes it; of one from before the start, what was left of it."""
    return RecordedJob(
        uid=job.uid,
        arrived_seconds=job.registered_seconds - start,
        train_seconds=job.train_seconds,
        ended=job.ended,
        pods=tuple(
            RecordedPods(
                count=role.count,
                milli_cpu=role.milli_cpu,
                memory_bytes=role.memory_bytes,
                accelerators=role.accelerators,
            )
            for role in job.roles.values()
        ),
    )


def answer(
    found: Comparison,
    recorded: Recorded,
    *,
    policies: tuple[str, str],
    span: tuple[float, float],
    stranded: Sequence[float],
    left_out: int,
) -> ClusterReplay:
    """The whole answer.

    Args:
        found: the replays.
        recorded: what they were made of.
        policies: the scheduler's, and the other one.
        span: begin and end of what was looked at.
        stranded: accelerators, as the scheduler saw them in this time.
        left_out: nodes and groups of pods that the scheduler did not send.
    """
    start, end = span
    came = [job for job in recorded.jobs if job.registered_seconds >= start]
    notes = [*_ALWAYS]
    wait = found.change["mean_wait"]
    if not found.before["waited"].high and not found.after["waited"].high:
        notes.append(
            "no job waits with either policy: there was room for all, so that this time does not "
            "tell them apart"
        )
    elif wait.low <= 0 <= wait.high:
        notes.append(
            "the difference of the mean wait is within what a minute more or less of each job "
            "makes: it says for neither policy"
        )
    if found.never:
        notes.append(
            f"jobs that do not fit on the nodes of now, and are in no figure: {found.never}"
        )
    if recorded.silent:
        notes.append(
            f"jobs that came and sent no sample, so that it is unknown what they wanted: "
            f"{recorded.silent}"
        )
    if policies[1] == "fgd":
        notes.append("fgd is told beforehand which shapes will come; a scheduler learns them")
    if left_out:
        notes.append(f"the cluster is too large: {left_out} nodes and groups of pods are left out")
    return ClusterReplay(
        start=start,
        end=end,
        policy_before=policies[0],
        policy=policies[1],
        jobs=found.jobs,
        ended=found.ended,
        running_before=len(recorded.jobs) - len(came),
        never=found.never,
        silent=recorded.silent,
        earlier=found.earlier,
        later=found.later,
        repetitions=found.repetitions,
        **{told: _figure(found, name) for name, told in _FIGURES.items()},
        recorded_mean_wait_seconds=fmean(
            [max(0.0, job.began_seconds - job.registered_seconds) for job in came] or [0.0]
        ),
        recorded_stranded_accelerators=fmean(stranded) if stranded else None,
        notes=notes,
    )


def _figure(found: Comparison, name: str) -> ReplayedFigure:
    sides = {"before": found.before, "after": found.after, "change": found.change}
    return ReplayedFigure(
        **{side: Spread(**asdict(figures[name])) for side, figures in sides.items()}
    )
