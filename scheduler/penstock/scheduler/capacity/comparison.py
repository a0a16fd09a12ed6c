"""Two placement policies on the same recorded jobs: what differs, and how far chance could do that.

What is not known to better than `KNOWN_WITHIN_SECONDS` (when a job came, and how long it trained)
is moved by up to that much in every repetition, alike for both policies. A difference that hangs on
who came a moment earlier then has a range round zero.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from statistics import fmean, median
from typing import Final

import numpy as np

from penstock.scheduler.capacity.replay import OutOfTimeError, RecordedJob, Replayed, replay
from penstock.scheduler.capacity.workload import HostedNode
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.placement.registry import POLICY_NAMES

KNOWN_WITHIN_SECONDS: Final = 60.0
"""What is recorded is summed up by the minute."""
REPETITIONS: Final = 8
"""With moved arrivals and durations, beside the one as recorded."""
WAITED_SECONDS: Final = 60.0
"""A job that starts within that has not waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure as recorded, and between what it lay in all repetitions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one run, or the differences of two; times in seconds."""

    mean_wait: float
    median_wait: float
    most_wait: float
    """Nine of ten jobs wait less."""
    waited: float
    """Jobs that waited for longer than a minute."""
    mean_completion: float
    """From arrival to end, of jobs that ended."""
    median_completion: float
    stranded_accelerators: float
    free_accelerators: float


_NAMES: Final = tuple(field.name for field in fields(Figures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two policies on the same jobs.

    Attributes:
        before, after, change: of each figure of `Figures`.
        earlier, later: jobs that start more than a minute earlier, or later.
        jobs, ended: that are in the figures, and of which the end is known.
        never: that do not fit on the nodes with one of the policies, and are in no figure.
        repetitions: that lie behind the ranges.
    """

    before: Mapping[str, Spread]
    after: Mapping[str, Spread]
    change: Mapping[str, Spread]
    earlier: int
    later: int
    jobs: int
    ended: int
    never: int
    repetitions: int


def compare(
    nodes: Sequence[HostedNode],
    jobs: Sequence[RecordedJob],
    before: str,
    after: str,
    span_seconds: float,
    *,
    repetitions: int = REPETITIONS,
    in_time: Callable[[], bool] = lambda: True,
) -> Comparison:
    """What recorded jobs would have waited with another placement policy.

    Args:
        nodes: with what pods of no job hold.
        jobs: those of before the begin as well.
        before, after: the policies.
        span_seconds: for which is looked; jobs that wait then are run to their end.
        in_time: asked now and then; once it says no, there are fewer repetitions.

    Raises:
        InvalidRequestError: no such policy, or twice the same.
        OutOfTimeError: not even one run with each was done in time.
    """
    for name in (before, after):
        if name not in POLICY_NAMES:
            raise InvalidRequestError("policy", name, f"one of {', '.join(POLICY_NAMES)}")
    if before == after:
        raise InvalidRequestError("policy", after, "is the policy now: name another one")
    ours: list[Figures] = []
    theirs: list[Figures] = []
    first: tuple[Replayed, Replayed] | None = None
    for number in range(1 + max(0, repetitions)):
        moved = jobs if number == 0 else _moved(jobs, number)
        try:
            old, new = (
                replay(nodes, moved, policy, span_seconds, in_time) for policy in (before, after)
            )
        except OutOfTimeError:
            if first is None:
                raise
            break
        first = first or (old, new)
        both = old.waited.keys() & new.waited.keys()
        ours.append(_figures(old, moved, both))
        theirs.append(_figures(new, moved, both))
    assert first is not None, "there is at least one run"
    before_waits, after_waits = first[0].waited, first[1].waited
    both = before_waits.keys() & after_waits.keys()
    moves = [after_waits[uid] - before_waits[uid] for uid in both]
    counted = [job for job in jobs if job.uid in both]
    return Comparison(
        before=_spreads(ours),
        after=_spreads(theirs),
        change=_spreads([_less(one, two) for one, two in zip(theirs, ours, strict=True)]),
        earlier=sum(move < -WAITED_SECONDS for move in moves),
        later=sum(move > WAITED_SECONDS for move in moves),
        jobs=len(counted),
        ended=sum(job.ended for job in counted),
        never=len(first[0].never | first[1].never),
        repetitions=len(ours) - 1,
    )


def _moved(jobs: Sequence[RecordedJob], seed: int) -> list[RecordedJob]:
    """The jobs with arrivals and durations as they may also have been."""
    generator = np.random.default_rng(seed)
    by = generator.uniform(-KNOWN_WITHIN_SECONDS, KNOWN_WITHIN_SECONDS, size=(len(jobs), 2))
    return [
        replace(
            job,
            arrived_seconds=max(0.0, job.arrived_seconds + arrival)
            if job.counted
            else job.arrived_seconds,
            train_seconds=max(job.train_seconds / 2, job.train_seconds + duration),
        )
        for job, (arrival, duration) in zip(jobs, by.tolist(), strict=True)
    ]


def _figures(run: Replayed, jobs: Iterable[RecordedJob], which: AbstractSet[str]) -> Figures:
    waits = sorted(run.waited[uid] for uid in which)
    completions = [
        run.waited[job.uid] + job.train_seconds for job in jobs if job.ended and job.uid in which
    ]
    return Figures(
        mean_wait=fmean(waits) if waits else 0.0,
        median_wait=median(waits) if waits else 0.0,
        most_wait=waits[min(len(waits) - 1, 9 * len(waits) // 10)] if waits else 0.0,
        waited=float(len(waits) - bisect_left(waits, WAITED_SECONDS)),
        mean_completion=fmean(completions) if completions else 0.0,
        median_completion=median(completions) if completions else 0.0,
        stranded_accelerators=run.stranded_accelerators,
        free_accelerators=run.free_accelerators,
    )


def _less(one: Figures, two: Figures) -> Figures:
    return Figures(**{name: getattr(one, name) - getattr(two, name) for name in _NAMES})


def _spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    found = {}
    for name in _NAMES:
        values = [getattr(run, name) for run in runs]
        found[name] = Spread(value=values[0], low=min(values), high=max(values))
    return found
