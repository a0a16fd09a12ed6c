"""A group of jobs and their data workers, with the very code that decides in the data plane.

Which tiles a job gets is decided by `penstock.data.sharing.pool`, which are whose by
`penstock.data.sharing.parts`, and what a job asks for by `penstock.data.window.free_window`. What
is simulated is time: jobs that take a tile in so many seconds, data workers that make one after the
other, and messages that are under way for a while. Everything is drawn from a seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.data.ledger.tiles import TileLedger
from penstock.data.sharing.parts import parts_of
from penstock.data.sharing.pool import Pick, Pool
from penstock.data.window.free_window import FreeOptions, FreeWindow
from penstock.sim.errors import SimulationError

EVENTS_A_TILE: Final = 200
"""More than that for each tile of each job: it does not come to an end."""
MOST_TOLD: Final = 4
"""Tiles that a job is told of as lying with a data worker, as in the data plane."""


@dataclass(frozen=True)
class Group:
    """What is simulated.

    A job's second is that in which the fastest takes a tile.

    Attributes:
        jobs: that share.
        tiles: of an epoch.
        epochs: that each job goes through.
        window: tiles that all data workers hold together.
        workers: data workers.
        speeds: the slowest job takes longer by up to this share of its time a tile (0.3: 1 / 0.7).
        joins: jobs begin within so many epochs of the fastest; 0: together.
        make_seconds: that a data worker makes a tile in.
        delay_seconds: that a message is under way.
        ahead: tiles that a job asks for ahead.
        seed: of all that is drawn.
    """

    jobs: int
    tiles: int = 200
    epochs: int = 4
    window: int = 20
    workers: int = 1
    speeds: float = 0.0
    joins: float = 0.0
    make_seconds: float = 0.0
    delay_seconds: float = 0.0
    ahead: int = 1
    seed: int = 1


@dataclass(frozen=True)
class JobTimes:
    """When a job begins, and the seconds that it takes for a tile."""

    begins: float
    seconds: float


def times_of(group: Group) -> list[JobTimes]:
    """Of each job; the first begins at 0 and is the fastest."""
    source = random.Random(group.seed)  # noqa: S311 - a simulation
    found = []
    for job in range(group.jobs):
        begins = source.random() * group.joins * group.tiles if job else 0.0
        seconds = 1 / (1 - group.speeds * source.random()) if job else 1.0
        found.append(JobTimes(begins, seconds))
    return found


@dataclass
class Outcome:
    """What it came to.

    Attributes:
        made: tiles that were made, in datasets an epoch.
        lost: share of all tiles that no program had which should have.
        repeated: that one had twice in an epoch.
        slowdown: of the fastest job, by what it would take if it never waited.
        longest_wait: of any job for a tile, in seconds.
    """

    made: float
    lost: float = 0.0
    repeated: float = 0.0
    slowdown: float = 0.0
    longest_wait: float = 0.0


@dataclass
class _Job:
    name: str
    times: JobTimes
    window: FreeWindow
    epochs_left: int
    busy: bool = False
    waits_since: float = 0.0
    epoch: list[int] = field(default_factory=list)
    taken: int = 0
    ended: float = 0.0


@dataclass
class _Worker:
    """One data worker: it does what it is asked for one after the other."""

    name: str
    pool: Pool
    orders: deque[Callable[[], float]] = field(default_factory=deque)  # each says how long it takes
    busy: bool = False
    told: dict[str, int] = field(default_factory=dict)  # tiles that lie there for each job


class _Agenda:
    """What happens when; messages are under way for ``delay_seconds``."""

    def __init__(self, delay_seconds: float) -> None:
        self.now = 0.0
        self._delay = delay_seconds
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Something happens in so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), act, arguments))

    def send(self, act: Callable[..., None], *arguments: Any) -> None:
        """A message; those between the same two arrive in the order in which they were sent."""
        self.after(self._delay, act, *arguments)

    def run(self, most: int) -> bool:
        """Until nothing happens any more; False: that is not so after so many events."""
        while self._events:
            self.now, number, act, arguments = heapq.heappop(self._events)
            if number > most:
                return False
            act(*arguments)
        return True


class World:
    """One simulated group; `run` it once."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._agenda = _Agenda(group.delay_seconds)
        window = max(1, group.window // group.workers)
        self._workers: dict[str, _Worker] = {}
        for number in range(group.workers):
            chance = random.Random(f"{group.seed} {number}")  # noqa: S311 - a simulation
            name = f"data-worker-{number}"
            self._workers[name] = _Worker(name, Pool(group.tiles, window, chance))
        self._jobs = {
            f"job-{number}": _Job(f"job-{number}", times, self._new_epoch(), group.epochs)
            for number, times in enumerate(times_of(group))
        }
        self._longest_wait = 0.0
        self._repeated = 0

    def _new_epoch(self) -> FreeWindow:
        options = FreeOptions(batch_tiles=1, divide=self._parts)
        return FreeWindow(TileLedger(self._group.tiles), self._group.ahead, options)

    def _parts(self, names: Collection[str]) -> dict[str, NDArray[np.bool_]]:
        return parts_of(self._group.tiles, names, str(self._group.seed).encode())

    def run(self) -> Outcome:
        """To the end of all jobs.

        Raises:
            SimulationError: there is none, so what decides is wrong.
        """
        group, jobs = self._group, list(self._jobs.values())
        for job in jobs:
            self._agenda.after(job.times.begins, self._begin, job)
        wanted = group.tiles * group.epochs
        most = EVENTS_A_TILE * wanted * group.jobs * group.workers
        if not self._agenda.run(most):
            raise SimulationError(f"{group}: more than {most} events, and no end")
        fastest = jobs[0]
        alone = wanted * fastest.times.seconds
        return Outcome(
            made=sum(worker.pool.made for worker in self._workers.values()) / wanted,
            lost=1 - sum(job.taken for job in jobs) / (wanted * group.jobs),
            repeated=self._repeated / (wanted * group.jobs),
            slowdown=(fastest.ended - fastest.times.begins) / alone - 1,
            longest_wait=self._longest_wait,
        )

    # ------------------------------------------------------------------ jobs

    def _begin(self, job: _Job) -> None:
        job.waits_since = self._agenda.now
        self._fill(job)

    def _fill(self, job: _Job) -> None:
        """Ask for tiles: first of those with whom one lies already, as `assign_tiles` does."""
        window = job.window
        while True:
            for name, part in window.meet(self._workers).items():
                self._agenda.send(self._order, name, self._join, job, part)
            asked = False
            open_to = set(self._workers)
            while open_to:
                name = window.rounds.whom_to_ask(sorted(open_to))
                request = window.ask(name, self._agenda.now)
                if request is None:
                    open_to.discard(name)
                else:
                    asked = True
                    self._agenda.send(self._order, name, self._answer, job, *request)
            if asked or not window.divides_again:
                return

    def _arrive(self, job: _Job, window: FreeWindow, name: str, step: int, tile: int) -> None:
        if window is not job.window:
            return  # of an epoch that is over: nobody waits for it
        window.arrived(name, step, (tile, [tile]))
        self._next(job)

    def _end_of_part(self, job: _Job, window: FreeWindow, name: str, step: int) -> None:
        if window is job.window:
            window.given_back(name, step, over=True)
            self._next(job)

    def _hear(self, job: _Job, window: FreeWindow, name: str, ready: int) -> None:
        if window is job.window:
            window.rounds.note_ready(name, ready)
            self._fill(job)

    def _next(self, job: _Job) -> None:
        """Take a tile if one is there and the last is done with."""
        if not job.busy and job.window.ready:
            _, tile = job.window.take()
            self._longest_wait = max(self._longest_wait, self._agenda.now - job.waits_since)
            job.epoch.append(tile)
            job.taken += 1
            job.busy = True
            self._agenda.after(job.times.seconds, self._done, job)
        self._fill(job)

    def _done(self, job: _Job) -> None:
        job.busy, job.waits_since = False, self._agenda.now
        if job.window.finished:
            self._end_epoch(job)
        else:
            self._next(job)

    def _end_epoch(self, job: _Job) -> None:
        self._repeated += len(job.epoch) - len(set(job.epoch))
        job.epoch = []
        job.epochs_left -= 1
        if not job.epochs_left:
            job.ended = self._agenda.now
            for worker in self._workers.values():
                self._agenda.send(self._order, worker.name, self._leave, job)
            return
        job.window = self._new_epoch()
        self._fill(job)

    # ------------------------------------------------------------------ data workers

    def _order(self, name: str, act: Callable[..., float], *arguments: Any) -> None:
        """A data worker is told or asked something, which it does when it has done the rest."""
        worker = self._workers[name]
        window = arguments[0].window
        worker.orders.append(lambda: act(worker, window, *arguments))
        if not worker.busy:
            self._work(worker)

    def _work(self, worker: _Worker) -> None:
        """Do what there is; what takes time is done when that has passed."""
        while worker.orders:
            seconds = worker.orders.popleft()()
            if seconds:
                worker.busy = True
                return
            self._tell(worker)

    def _join(
        self, worker: _Worker, _: FreeWindow, job: _Job, part: NDArray[np.bool_]
    ) -> float:  # fmt: skip
        worker.pool.join(job.name, part)
        worker.told[job.name] = 0
        return 0.0

    def _leave(self, worker: _Worker, _: FreeWindow, job: _Job) -> float:
        worker.pool.leave(job.name)
        worker.told.pop(job.name, None)
        return 0.0

    def _answer(
        self, worker: _Worker, window: FreeWindow, job: _Job, step: int, count: int
    ) -> float:  # fmt: skip
        picks = worker.pool.choose(job.name, count) if job.name in worker.pool.members else []
        if not picks:
            self._agenda.send(self._end_of_part, job, window, worker.name, step)
            return 0.0
        [pick] = picks
        seconds = 0.0 if pick.held else self._group.make_seconds
        if seconds:
            self._agenda.after(seconds, self._made, worker, window, job, step, pick)
        else:
            self._deliver(worker, window, job, step, pick)
        return seconds

    def _made(
        self, worker: _Worker, window: FreeWindow, job: _Job, step: int, pick: Pick
    ) -> None:  # fmt: skip
        worker.busy = False
        self._deliver(worker, window, job, step, pick)
        self._tell(worker)
        self._work(worker)

    def _deliver(
        self, worker: _Worker, window: FreeWindow, job: _Job, step: int, pick: Pick
    ) -> None:  # fmt: skip
        if not pick.held:
            worker.pool.note_made(job.name, pick.instance, 1)
            worker.pool.take_dropped()
        self._agenda.send(self._arrive, job, window, worker.name, step, pick.tile)

    def _tell(self, worker: _Worker) -> None:
        """Tell each job how many tiles lie here for it, where that has changed."""
        for name, told in worker.told.items():
            ready = min(MOST_TOLD, worker.pool.ready(name))
            if ready != told:
                worker.told[name] = ready
                job = self._jobs[name]
                self._agenda.send(self._hear, job, job.window, worker.name, ready)
