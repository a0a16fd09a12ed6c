"""Rules of sharing that others have, or that were not taken, and the least that any can make.

All of them see the same jobs: they begin when `times_of` says, and take a tile in as many seconds.
Nobody waits for a making, so that a rule is judged by how many it needs.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.sim.sharing.world import Group, JobTimes, Outcome, World, times_of

ALONE: Final = "each alone"
MEMO: Final = "common order"
OWED: Final = "common order, head owed"
SLIDING: Final = "sliding window"
FREE: Final = "free order"


class _Memory:
    """The newest tiles of a window; what is not there is made."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._held: OrderedDict[int, None] = OrderedDict()
        self.made = 0

    def get(self, tile: int) -> None:
        if tile in self._held:
            return
        self.made += 1
        self._held[tile] = None
        if len(self._held) > self._window:
            self._held.popitem(last=False)


def turns(group: Group) -> Iterator[int]:
    """Whose turn it is, tile by tile, if nobody ever waits: numbers of jobs, in order of time."""
    times = times_of(group)
    left = [group.epochs * group.tiles] * group.jobs
    due = [(one.begins, job) for job, one in enumerate(times)]
    heapq.heapify(due)
    while due:
        now, job = heapq.heappop(due)
        yield job
        left[job] -= 1
        if left[job]:
            heapq.heappush(due, (now + times[job].seconds, job))


def alone(group: Group) -> Outcome:
    """Nobody shares."""
    return Outcome(made=float(group.jobs))


def memo(group: Group) -> Outcome:
    """One order for all, each from its beginning: shared while it lies in the window."""
    memory = _Memory(group.window)
    taken = [0] * group.jobs
    for job in turns(group):
        memory.get(taken[job])
        taken[job] += 1
    return Outcome(made=memory.made / (group.tiles * group.epochs))


def owed(group: Group) -> Outcome:
    """One order for all; who comes late begins at the front, and has the head of the epoch last."""
    memory = _Memory(group.window)
    tiles, front = group.tiles, 0
    begun: list[int | None] = [None] * group.jobs
    taken = [0] * group.jobs
    for job in turns(group):
        start = begun[job]
        if start is None:
            start = begun[job] = front
        number = start + taken[job]
        # Of the epoch in which it began the rest comes first, and then the head of that epoch.
        epoch, missed = start // tiles, start % tiles
        if taken[job] >= tiles - missed:
            number = epoch * tiles + taken[job] - (tiles - missed)
        memory.get(number)
        front = max(front, number)
        taken[job] += 1
        if taken[job] == tiles:
            taken[job] = 0
            begun[job] = max(front, start + tiles)
    return Outcome(made=memory.made / (tiles * group.epochs))


def sliding(group: Group) -> Outcome:
    """tf.data service's: the front makes, the back goes, and who falls behind loses it.

    An epoch is as many tiles of an endless stream as there are, not each tile once.
    """
    front, lost = -1, 0
    at: list[int | None] = [None] * group.jobs
    for job in turns(group):
        back = max(0, front - group.window + 1)
        place = at[job]
        if place is None:
            place = back
        lost += max(0, back - place)
        place = max(back, place)
        front = max(front, place)
        at[job] = place + 1
    wanted = group.tiles * group.epochs
    return Outcome(made=(front + 1) / wanted, lost=lost / (wanted * group.jobs))


def free(group: Group) -> Outcome:
    """Ours: any tile that is there and lacking, and each once in an epoch."""
    return World(group).run()


RULES: Final = {ALONE: alone, MEMO: memo, OWED: owed, SLIDING: sliding, FREE: free}


@dataclass(frozen=True)
class Life:
    """When a job begins and ends, and ``taken(start, stop)``: the tiles that it takes between."""

    begins: float
    ends: float
    taken: Callable[[float, float], float]


def bound(group: Group) -> float:
    """The least that must be made, in datasets an epoch, if no job waits or loses a tile."""
    wanted = group.tiles * group.epochs
    lives = [_steady(one, wanted) for one in times_of(group)]
    return bound_of(lives, group.window) / wanted


def _steady(times: JobTimes, wanted: int) -> Life:
    def taken(start: float, stop: float) -> float:
        return (stop - start) / times.seconds

    return Life(times.begins, times.begins + times.seconds * wanted, taken)


def bound_of(lives: Sequence[Life], window: int) -> float:
    """The tiles that must be made at least for jobs that take tiles when they do, and lose none.

    No job has an instance twice. So of what a job takes in some time, all was made in that time but
    for what was held when it began, which is a window at most, and nothing at the very beginning.
    Times of several jobs, one after the other, add up; this is the best choice of them.

    Args:
        lives: of the jobs; at least one.
        window: tiles that all data workers hold together.
    """
    moments = sorted({moment for one in lives for moment in (one.begins, one.ends)})
    best = [0.0] * len(moments)
    for later in range(1, len(moments)):
        best[later] = best[later - 1]
        for earlier in range(later):
            start, stop = moments[earlier], moments[later]
            held = window if earlier else 0
            for one in lives:
                if one.begins <= start and stop <= one.ends:
                    made = one.taken(start, stop) - held
                    best[later] = max(best[later], best[earlier] + made)
    return best[-1]
