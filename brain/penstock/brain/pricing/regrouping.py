"""Plans of some jobs made anew together, while the others stay: the last step of `greedy`.

Exchanges (`greedy`) change few jobs at a time and stop where several would have to change at once.
Here a group of jobs, each of which may get any of its options, is looked at in all combinations,
and the best one is taken where it is better than what the group has. Groups are as large as
`MOST_COMBINATIONS` allows, so that the time is bounded however many jobs there are; a plan of few
jobs is one group, and then none is better.

Guarantees: a plan never gets worse, still fits, and no job that runs loses its place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.brain.pricing.filling import SLACK, Change, Filling

MOST_COMBINATIONS: Final = 60_000
"""Of the options of one group: six jobs with six options, some milliseconds."""
MOST_GROUPS: Final = 120
"""That are looked at for one plan."""
ALL_GROUPS: Final = 60
"""Up to so many groups there can be, all are looked at, else those that stand out."""

T = TypeVar("T", np.float64, np.int64)


def regroup(filling: Filling) -> None:
    """Make the plan better by groups of its jobs, until none helps or enough were tried."""
    left = MOST_GROUPS
    improved = True
    while improved and left > 0:
        improved = False
        for group in itertools.islice(_groups(filling), left):
            left -= 1
            changes = _better(filling, group)
            if changes:
                filling.apply(changes)
                improved = True


def _groups(filling: Filling) -> Iterator[Sequence[int]]:
    """Groups of running jobs that have a choice: all of them where these are few.

    Else neighbours in the order of what one more unit of money would buy each: those that should
    grow and those that should shrink are interleaved, so that a group has some of both.
    """
    jobs = [job for job in filling.running() if len(filling.options[job]) > 1]
    if not jobs:
        return
    size = _most(filling, jobs)
    if math.comb(len(jobs), size) <= ALL_GROUPS:
        yield from itertools.combinations(jobs, size)
        return
    order = _interleaved(filling, jobs)
    for start in range(0, len(order), max(1, size // 2)):
        group = order[start : start + size]
        while math.prod(len(filling.options[job]) for job in group) > MOST_COMBINATIONS:
            group = group[:-1]
        if len(group) > 1:
            yield group


def _most(filling: Filling, jobs: Sequence[int]) -> int:
    """How many jobs a group may have, whichever they are."""
    product = 1
    for number, options in enumerate(
        sorted((len(filling.options[job]) for job in jobs), reverse=True)
    ):
        product *= options
        if product > MOST_COMBINATIONS:
            return max(1, number)
    return len(jobs)


def _interleaved(filling: Filling, jobs: Sequence[int]) -> list[int]:
    def best(job: int, *, up: bool) -> float:
        gains = [filling.gain(job, option) for option in range(len(filling.options[job]))]
        ratios = [
            abs(work) / max(abs(cost), 1e-12)
            for work, cost in gains
            if (work > 0 if up else work < 0)
        ]
        if not ratios:
            return -math.inf
        return max(ratios) if up else -min(ratios)

    ups = sorted(jobs, key=lambda job: (-best(job, up=True), job))
    downs = sorted(jobs, key=lambda job: (-best(job, up=False), job))
    return list(dict.fromkeys(itertools.chain.from_iterable(zip(ups, downs, strict=True))))


def _better(filling: Filling, group: Sequence[int]) -> list[Change]:
    """What the jobs of a group would have to change to for the best plan; none where they have it.

    Sums are of all jobs: what the others have is the same in every combination.
    """
    gains = [
        [filling.gain(job, option) for option in range(len(filling.options[job]))] for job in group
    ]
    work = filling.work + _sums([np.array([gain[0] for gain in own]) for own in gains])
    cost = filling.cost + _sums([np.array([gain[1] for gain in own]) for own in gains])
    fits = _fitting(filling, group)
    if filling.room.cost_per_hour is not None:
        fits &= cost <= filling.room.cost_per_hour * (1 + SLACK)
    wanted = filling.room.work
    enough = fits & (work >= wanted * (1 - SLACK)) if wanted is not None else None
    if enough is not None and enough.any():
        best = int(np.argmin(np.where(enough, cost, np.inf)))
        made = filling.work >= (wanted or 0.0) * (1 - SLACK)
        if made and cost[best] >= filling.cost - SLACK * max(filling.cost, 1e-12):
            return []
    else:
        best = int(np.argmax(np.where(fits, work, -np.inf)))
        if work[best] <= filling.work + SLACK * max(filling.work, 1e-12):
            return []
    chosen = np.unravel_index(best, tuple(len(filling.options[job]) for job in group))
    pairs = zip(group, (int(option) for option in chosen), strict=True)
    return [(job, option) for job, option in pairs if option != filling.chosen[job]]


def _fitting(filling: Filling, group: Sequence[int]) -> NDArray[np.bool_]:
    """Which combinations fit into capacity and quotas."""
    more = {job: _more(filling, job) for job in group}
    fits = np.ones(math.prod(len(own) for own in more.values()), dtype=bool)
    for bound, used, queue in filling.bounds():
        inside = [job for job in group if queue in (None, filling.jobs[job].queue)]
        for index, most in enumerate(bound.amounts()):
            if any((more[job][:, index] > 0).any() for job in inside):
                counts = [more[job][:, index] * (job in inside) for job in group]
                fits &= used[index] + _sums(counts) <= most
    return fits


def _more(filling: Filling, job: int) -> NDArray[np.int64]:
    """What each option of a running job takes more than the one that it has."""
    amounts = [option.resources.amounts() for option in filling.options[job]]
    more: NDArray[np.int64] = np.array(amounts, dtype=np.int64)
    more -= more[filling.chosen[job]].copy()
    return more


def _sums(parts: Sequence[NDArray[T]]) -> NDArray[T]:
    """The sums of one of each, in the order of `numpy.unravel_index`."""
    total = parts[0]
    for part in parts[1:]:
        total = (total[:, None] + part[None, :]).reshape(-1)
    return total
