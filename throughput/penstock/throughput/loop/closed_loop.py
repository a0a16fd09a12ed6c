"""The loader and the training as a closed loop: workers, cores, prefetching, delivery in order.

The least of the bounds of `capacity` is right where every batch takes the same time. Where they do
not, or where the training competes for the cores, a job is slower: a batch that is late holds up
those behind it, and a window of finite size lets workers stand idle. Such a loop of a few hundred
batches is simulated here in milliseconds, with the batch times as they were measured.

Cores are shared among those who want one as a fair scheduler shares them: everybody gets as much as
the others, or what it wants if that is less.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.resources import MOST_WORKERS

BATCHES: Final = 400
_NEVER: Final = math.inf
_MOMENT: Final = 1e-12
"""Seconds that are no time."""
_NOBODY: Final = -1
"""Owns the work of receiving a batch."""


@dataclass(frozen=True, slots=True)
class Loop:
    """What is simulated; times are seconds a batch.

    Attributes:
        workers: local ones; 0: the training thread makes what is not made elsewhere.
        cores: of the training pod.
        window: batches that may be under way or ready, beyond the one that is trained.
        cpu, blocked: of making a batch here.
        step: of training one.
        step_cores: busy cores while one is trained.
        hand_over: of the training thread, to take one.
        spread: what the times of batches are, as shares of the mean.
        contention: growth of CPU times per further busy core.
        others: threads of other programs that always want a core.
        in_turn: batches are dealt to local workers in turn.
        makers: elsewhere, each with a core of its own.
        away_cpu, away_blocked: of making one there.
        link: of the network, for one after the other.
        receive: of a core here, for one that comes.
        share: of the batches that are made elsewhere; None: whoever is free takes the next.
    """

    workers: int
    cores: float
    window: int
    cpu: float
    blocked: float
    step: float
    step_cores: float = 0.0
    hand_over: float = 0.0
    spread: Sequence[float] = (1.0,)
    contention: float = 0.0
    others: float = 0.0
    in_turn: bool = False
    makers: int = 0
    away_cpu: float = 0.0
    away_blocked: float = 0.0
    link: float = 0.0
    receive: float = 0.0
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        rate: batches a second.
        stalled: share of the time in which the training waited.
        share: of the batches that were made elsewhere.
        busy_cores: of the training pod, on average.
    """

    rate: float
    stalled: float
    share: float
    busy_cores: float


def simulate(loop: Loop, *, batches: int = BATCHES, seed: int = 0) -> Outcome:
    """Run the loop; the first third of the batches is not counted.

    Raises:
        ProfileError: the loop would never end, or is beyond what is simulated.
    """
    if loop.workers + loop.makers > MOST_WORKERS:
        raise ProfileError(
            f"{loop.workers} workers and {loop.makers} cores of data workers; at most "
            f"{MOST_WORKERS} together are simulated: ask for fewer"
        )
    if loop.step <= 0 or loop.cores <= 0 or min(loop.spread) < 0:
        raise ProfileError("a step and the cores must be more than 0, times not less than 0")
    return _Run(loop, batches, random.Random(seed)).result()  # noqa: S311 - no secret


@dataclass(slots=True, eq=False)
class _Run:
    """The state of one simulation; owners are workers, then makers elsewhere.

    All who want a core get equally much of one, so that those who began with less work end first:
    ``worked`` is what each of them has got, and a job ends when that reaches what it had then and
    its own work. So an event costs the same however many wait.
    """

    loop: Loop
    batches: int
    draw: random.Random
    now: float = 0.0
    next_batch: int = 0
    taken: int = 0
    worked: float = 0.0
    begun: int = 0
    hungry: list[tuple[float, int, int, int]] = field(default_factory=list)
    """A heap of jobs on cores: at which ``worked`` each ends, its number, owner and batch."""
    blocked: dict[int, tuple[float, int]] = field(default_factory=dict)
    """By batch, those that get a core later: their work, and their number."""
    step_left: float = 0.0
    timers: list[tuple[float, int, int, int]] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    away: set[int] = field(default_factory=set)
    in_line: set[int] = field(default_factory=set)
    link_free: float = 0.0
    training: bool = False
    waited: float = 0.0
    busy: float = 0.0
    mark: float = 0.0
    turns: dict[int, int] = field(default_factory=dict)

    def result(self) -> Outcome:
        loop = self.loop
        self.idle = list(range(loop.workers + loop.makers))
        self.turns = {worker: worker for worker in range(loop.workers)}
        counted = self.batches // 3
        while self.taken < self.batches:
            self._deal()
            if not self.training:
                self._take()
            if self.taken == counted and not self.mark:
                self.mark, self.waited, self.busy = self.now or _MOMENT, 0.0, 0.0
            self._advance()
        time = self.now - self.mark or _MOMENT  # far from 0 a step may be less than a clock's digit
        made = self.batches - counted
        remote = sum(1 for batch in self.away if batch >= counted)
        return Outcome(made / time, self.waited / time, min(1.0, remote / made), self.busy / time)

    def _deal(self) -> None:
        """Give whoever is free the next batch that it may make."""
        loop, limit = self.loop, self.taken + self.loop.window
        for owner in list(self.idle):
            if loop.in_turn and not loop.makers:
                batch = self.turns[owner]
                if batch >= limit:
                    continue
                self.turns[owner] = batch + loop.workers
            else:
                batch = self.next_batch
                if batch >= limit:
                    return
                if loop.share is not None and self._goes_away(batch) != (owner >= loop.workers):
                    continue
                self.next_batch += 1
            self.idle.remove(owner)
            self._begin(owner, batch)

    def _goes_away(self, batch: int) -> bool:
        share = self.loop.share or 0.0
        return math.floor((batch + 1) * share) > math.floor(batch * share)

    def _begin(self, owner: int, batch: int) -> None:
        loop, factor = self.loop, self.draw.choice(self.loop.spread)
        if owner >= loop.workers:
            self.away.add(batch)
            end = self.now + (loop.away_cpu + loop.away_blocked) * factor
            heapq.heappush(self.timers, (end, 1, owner, batch))
            return
        self._make(owner, batch, factor)

    def _make(self, owner: int, batch: int, factor: float) -> None:
        """Here, on a core that others want too."""
        loop = self.loop
        self.begun += 1
        if loop.blocked:
            self.blocked[batch] = loop.cpu * factor, self.begun
            heapq.heappush(self.timers, (self.now + loop.blocked * factor, 0, owner, batch))
        else:
            self._compute(loop.cpu * factor, self.begun, owner, batch)

    def _compute(self, work: float, number: int, owner: int, batch: int) -> None:
        """Somebody wants a core for so many seconds of one."""
        if not self.hungry:
            self.worked = 0.0  # for its precision
        heapq.heappush(self.hungry, (self.worked + work, number, owner, batch))

    def _take(self) -> None:
        """The training takes the next batch, if it is there, or makes it itself."""
        loop = self.loop
        if self.taken in self.ready:
            self.ready.discard(self.taken)
            work = loop.step + (0.0 if self.taken in self.in_line else loop.hand_over)
            self.training = True
            self.step_left = work
        elif not loop.workers and (not loop.makers or loop.share is not None):
            if self.taken in self.in_line or (loop.makers and self._goes_away(self.taken)):
                return
            self.in_line.add(self.taken)
            self.next_batch = max(self.next_batch, self.taken + 1)
            self._make(_NOBODY, self.taken, self.draw.choice(loop.spread))

    def _advance(self) -> None:
        """To the next moment at which something ends."""
        loop = self.loop
        hungry, trains = len(self.hungry), self.training
        speed, step_speed = self._speeds(hungry, trains)
        moment = self.timers[0][0] - self.now if self.timers else _NEVER
        first = (self.hungry[0][0] - self.worked) / speed if hungry else _NEVER
        step = self.step_left / step_speed if trains else _NEVER
        moment = min(moment, first, step)
        if moment == _NEVER:
            raise ProfileError("nobody makes batches: neither workers nor the training itself")
        self.now += moment
        self.busy += moment * min(loop.cores, hungry + (loop.step_cores * step_speed * trains))
        if not trains:
            self.waited += moment
        self.step_left = 0.0 if moment == step else self.step_left - moment * step_speed
        if hungry:
            self.worked = self.hungry[0][0] if moment == first else self.worked + moment * speed
        ended = []
        while self.hungry and self.hungry[0][0] <= self.worked + _MOMENT:
            ended.append(heapq.heappop(self.hungry)[1:])
        while self.timers and self.timers[0][0] <= self.now + _MOMENT:
            self._ring(*heapq.heappop(self.timers)[1:])
        for _, owner, batch in sorted(ended):
            self._made(owner, batch)
        if trains and self.step_left <= _MOMENT:
            self.training = False
            self.taken += 1

    def _speeds(self, hungry: int, trains: bool) -> tuple[float, float]:
        """Of each of those who want a core, and of the training."""
        loop = self.loop
        wanted = loop.step_cores if trains else 0.0
        threads = math.ceil(wanted) if wanted else 0
        hungry_all = hungry + loop.others
        slowed = 1 + loop.contention * max(0.0, min(loop.cores, hungry_all + wanted) - 1)
        if hungry_all + wanted <= loop.cores:
            return 1 / slowed, 1 / slowed if wanted >= 0.5 else 1.0
        level = loop.cores / (hungry_all + threads)
        if threads and wanted / threads <= level:
            level = (loop.cores - wanted) / hungry_all
            return level / slowed, 1 / slowed if wanted >= 0.5 else 1.0
        share = min(1.0, level * threads / wanted) if wanted else 1.0
        return min(1.0, level) / slowed, share / slowed

    def _ring(self, kind: int, owner: int, batch: int) -> None:
        loop = self.loop
        if kind == 0:  # what it has waited for is there
            work, number = self.blocked.pop(batch)
            if work > 0:
                self._compute(work, number, owner, batch)
            else:
                self._made(owner, batch)
        elif kind == 1:  # made elsewhere: over the network
            self.link_free = max(self.link_free, self.now) + loop.link
            heapq.heappush(self.timers, (self.link_free, 2, owner, batch))
            self.idle.append(owner)
        elif loop.receive:  # here
            self.begun += 1
            self._compute(loop.receive, self.begun, _NOBODY, batch)
        else:
            self.ready.add(batch)

    def _made(self, owner: int, batch: int) -> None:
        self.ready.add(batch)
        if owner != _NOBODY:
            self.idle.append(owner)
