"""Which jobs get a data worker this interval, and which give one up (pure).

A job gets at most as many data workers per interval as the policy allows, which for the policies of
the paper is one, or as a model of the job says that it needs; jobs that report nonsense are left
alone; whether there is room is asked of the caller, who knows the nodes. Taking back has a
threshold and a pause, so that two jobs with about equal keys do not pass a worker to and fro: a
move must be worth at least `MIN_MOVE_GAIN`, and a job gives up workers at most once per
`MOVE_PAUSE_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.policies.policy import AllocationPolicy

MIN_MOVE_GAIN: Final = 0.05
"""By how much the key of the taker must be below that of the giver, as a part of it."""

MOVE_PAUSE_SECONDS: Final = 300.0
"""How long a job that got a data worker gives none up."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The jobs of one interval: who wants a data worker, in order, and who was left out and why."""

    wanting: tuple[JobRates, ...]
    holding: tuple[JobRates, ...]
    """Jobs with data workers, the first to give one up first."""
    unusable: tuple[tuple[str, str], ...]


def rank(jobs: Sequence[JobRates], policy: AllocationPolicy) -> Ranking:
    """Put the jobs in the policy's order; ties go by name, so that a run can be repeated."""
    sound = [job for job in jobs if job.problem() is None]
    unusable = tuple((job.job, problem) for job in jobs if (problem := job.problem()) is not None)
    ordered = sorted(sound, key=lambda job: (policy.key(job), job.job))
    return Ranking(
        wanting=tuple(job for job in ordered if job.starves),
        holding=tuple(job for job in reversed(ordered) if job.data_workers),
        unusable=unusable,
    )


@dataclass(frozen=True, slots=True)
class Allocation:
    """What to do: how many data workers to start, and to drain, for each job."""

    grow: Mapping[str, int]
    shrink: Mapping[str, int]


def allocate(
    jobs: Sequence[JobRates],
    policy: AllocationPolicy,
    has_room: Callable[[JobRates], bool],
    resting: Collection[str] = (),
) -> Allocation:
    """One interval's decisions.

    Args:
        jobs: every running job.
        policy: the order, and how many workers a job may get at once.
        has_room: reserves room for one more worker of the job, or says no; asked in the policy's
            order, and for one job until it has what it may get.
        resting: jobs that got a worker less than `MOVE_PAUSE_SECONDS` ago; they give none up.
    """
    ranking = rank(jobs, policy)
    grow: dict[str, int] = {}
    unserved: list[tuple[JobRates, int]] = []
    for job in ranking.wanting:
        most = policy.most_per_interval(job)
        got = next((count for count in range(most) if not has_room(job)), most)
        if got:
            grow[job.job] = got
        if got < most:
            unserved.append((job, most - got))
    _grow_at_once(ranking.wanting, grow, has_room)
    if not policy.takes_back:
        return Allocation(grow, {})
    givers = [job for job in ranking.holding if job.job not in resting and job.job not in grow]
    return Allocation(grow, _taken_back(unserved, givers, policy))


def _grow_at_once(
    wanting: Sequence[JobRates], grow: dict[str, int], has_room: Callable[[JobRates], bool]
) -> None:
    """The rest of what models ask for, where all have had what the policy gives them.

    In turns, one each, so that one job's prediction takes no room that another's would have had.
    """
    left = [job for job in wanting if 0 < grow.get(job.job, 0) < job.at_once]
    while left:
        left = [job for job in left if has_room(job)]
        for job in left:
            grow[job.job] += 1
        left = [job for job in left if grow[job.job] < job.at_once]


def _taken_back(
    takers: Sequence[tuple[JobRates, int]], givers: Sequence[JobRates], policy: AllocationPolicy
) -> dict[str, int]:
    """How many workers each giver drains; a giver gives only to much smaller keys.

    It may give its last one: its training workers go on pre-processing with their own cores.
    """
    shrink: dict[str, int] = {}
    spare = [(giver, giver.data_workers) for giver in givers if giver.data_workers]
    for taker, most in takers:
        wanted = most
        while wanted and spare:
            giver, left = spare[0]
            if policy.key(taker) >= (1.0 - MIN_MOVE_GAIN) * policy.key(giver):
                return shrink
            taken = min(wanted, left)
            shrink[giver.job] = shrink.get(giver.job, 0) + taken
            wanted -= taken
            if left > taken:
                spare[0] = (giver, left - taken)
            else:
                spare.pop(0)
    return shrink
