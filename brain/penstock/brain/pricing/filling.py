"""What all jobs hold at one moment of a plan, and whether a change of it fits.

Amounts are whole numbers (milli-cores, bytes, devices), so that sums are exact whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Final

from penstock.brain.pricing.problem import Option, PricedJob, Resources, Room, useful

NAMES: Final = ("CPU", "memory", "accelerators")
CAPACITIES: Final = tuple(f"the capacity of {name}" for name in NAMES)
WAITS: Final = -1
"""The index of the option of a job that has none."""
SLACK: Final = 1e-9
"""Relative error of sums of costs and of work that counts as equal."""

Change = tuple[int, int]
"""A job, by its place, and the option that it is to have."""


class Filling:
    """Which option each job has: begins with none, and changes only by what fits."""

    def __init__(self, jobs: Sequence[PricedJob], room: Room) -> None:
        self.jobs = jobs
        self.room = room
        self.options = [useful(job.options) for job in jobs]
        self.chosen = [WAITS] * len(jobs)
        self.work = 0.0
        self.cost = 0.0
        self._used = [0, 0, 0]
        self._queues: dict[str, list[int]] = {job.queue: [0, 0, 0] for job in jobs}

    def copy(self) -> Filling:
        """The same, to try something on."""
        other = copy(self)
        other.chosen = list(self.chosen)
        other._used = list(self._used)
        other._queues = {queue: list(used) for queue, used in self._queues.items()}
        return other

    def running(self) -> Iterable[int]:
        """The places of the jobs that have an option."""
        return (job for job, option in enumerate(self.chosen) if option != WAITS)

    def option(self, job: int) -> Option | None:
        """What a job has."""
        chosen = self.chosen[job]
        return None if chosen == WAITS else self.options[job][chosen]

    def taken(self, job: int, option: int, prices: Sequence[float]) -> float:
        """What another option takes more of the capacity, each whole resource at a price."""
        if self.room.capacity is None:
            return 0.0
        new, old = self.options[job][option].resources, self.option(job)
        before = old.resources.amounts() if old else (0, 0, 0)
        most = self.room.capacity.amounts()
        parts = zip(prices, new.amounts(), before, most, strict=True)
        return sum(price * (own - its) / (bound or 1) for price, own, its, bound in parts)

    def gain(self, job: int, option: int) -> tuple[float, float]:
        """What another option adds to the work and to the cost of all."""
        new, old = self.options[job][option], self.option(job)
        throughput = new.throughput - (old.throughput if old else 0.0)
        cost = new.cost_per_hour - (old.cost_per_hour if old else 0.0)
        return self.jobs[job].weight * throughput, cost

    def bounds(self) -> Iterator[tuple[Resources, Sequence[int], str | None]]:
        """What may be taken, what is taken of it, and of which queue; None: of all together."""
        if self.room.capacity is not None:
            yield self.room.capacity, self._used, None
        for queue, used in self._queues.items():
            if (quota := self.room.quotas.get(queue)) is not None:
                yield quota, used, queue

    def obstacle(self, changes: Sequence[Change]) -> str | None:
        """What these changes, all at once, do not fit into; None where they fit."""
        total, queues, cost = self._after(changes)
        bound = self.room.capacity
        if bound is not None and (name := _exceeded(self._used, total, bound)) is not None:
            return CAPACITIES[name]
        for queue, added in queues.items():
            quota = self.room.quotas.get(queue)
            if quota is None:
                continue
            name = _exceeded(self._queues[queue], added, quota)
            if name is not None:
                return f"the quota of {NAMES[name]} of {queue}"
        most = self.room.cost_per_hour
        if most is not None and cost > 0 and self.cost + cost > most * (1 + SLACK):
            return "the budget"
        return None

    def apply(self, changes: Sequence[Change]) -> None:
        """Carry out changes that fit."""
        total, queues, cost = self._after(changes)
        for index, amount in enumerate(total):
            self._used[index] += amount
        for queue, added in queues.items():
            for index, amount in enumerate(added):
                self._queues[queue][index] += amount
        self.cost += cost
        for job, option in changes:
            self.work += self.gain(job, option)[0]
            self.chosen[job] = option

    def _after(self, changes: Sequence[Change]) -> tuple[list[int], dict[str, list[int]], float]:
        total, cost = [0, 0, 0], 0.0
        queues: dict[str, list[int]] = {}
        for job, option in changes:
            new = self.options[job][option].resources.amounts()
            old = self.option(job)
            before = old.resources.amounts() if old else (0, 0, 0)
            own = queues.setdefault(self.jobs[job].queue, [0, 0, 0])
            for index in range(3):
                total[index] += new[index] - before[index]
                own[index] += new[index] - before[index]
            cost += self.gain(job, option)[1]
        return total, queues, cost


def _exceeded(used: Sequence[int], added: Sequence[int], bound: Resources) -> int | None:
    for index, (own, more, most) in enumerate(zip(used, added, bound.amounts(), strict=True)):
        if more > 0 and own + more > most:
            return index
    return None
