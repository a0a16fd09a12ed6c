"""The cases of permits in simulated time: what is lost there is no machine's noise.

The same workloads, environments, permits, window and rule of who is asked for what as on a machine,
and the same judge: so what a case loses here is the decision's (`--virtual`). Nothing of it is
measured, and what moves a batch costs what the workload says and no more: a receiving thread's
core, a link. Real cases have no such model.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from benchmarks.offloading.cases import Environment, Workload
from benchmarks.offloading.machine import CALIBRATION, SKIPPED_SECONDS, Run
from penstock.data.queue.assignment import is_remote
from penstock.data.queue.credits import PREFETCH, credits_of
from penstock.throughput.observations.running_job import Interval, Making, profile_of
from penstock.throughput.profiles.profile import Profile

_RECEIVING: Final = 32
"""Batches that have come and still cost their receiver something."""


class Signal:
    """What processes wait for; all of them go on."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []


class Permits:
    """So many, given out in the order in which they are asked for."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: deque[Any] = deque()


Process = Generator[float | Signal | Permits, None, None]
"""Yields what it waits for: seconds, a signal, a permit."""


class Clock:
    """Runs processes in the order of their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._due: list[tuple[float, int, Process]] = []

    def start(self, process: Process) -> None:
        """At once."""
        heapq.heappush(self._due, (self.now, next(self._order), process))

    def release(self, permits: Permits) -> None:
        """Give one back."""
        if permits.waiting:
            self.start(permits.waiting.popleft())
        else:
            permits.free += 1

    def notify(self, signal: Signal) -> None:
        """All who wait for it."""
        waiting, signal.waiting = signal.waiting, []
        for process in waiting:
            self.start(process)

    def run(self, until: float) -> None:
        """Up to a moment, or until nobody has anything to do."""
        while self._due and self._due[0][0] <= until:
            self.now, _, process = heapq.heappop(self._due)
            wants = next(process, None)
            if isinstance(wants, Signal):
                wants.waiting.append(process)
            elif isinstance(wants, Permits):
                if wants.free:
                    wants.free -= 1
                    self.start(process)
                else:
                    wants.waiting.append(process)
            elif wants is not None:
                heapq.heappush(self._due, (self.now + wants, next(self._order), process))


@dataclass
class _Maker:
    """Attributes: steps that it was asked for and has not made; seconds of a batch, as seen."""

    remote: bool
    asked: deque[int] = field(default_factory=deque)
    seconds: float | None = None
    busy: float = 0.0
    wakes: Signal = field(default_factory=Signal)


class Training:
    """One run of one workload."""

    def __init__(
        self,
        environment: Environment,
        workload: Workload,
        workers: int,
        share: float | None,
        seed: int,
    ) -> None:
        self.clock = Clock()
        self.costs = environment.setup(workload)
        self._permits = {name: Permits(many) for name, many in environment.permits().items()}
        self._share = share if share is not None and workers else None
        self._none_remote = share == 0.0
        self.makers = [_Maker(remote=False) for _ in range(environment.local)]
        self.makers += [_Maker(remote=True) for _ in range(workers)]
        self._draw = random.Random(seed)
        self._size = int(workload.batch_bytes)
        self._free = 0
        self._kept: deque[int] = deque()
        self._ready: dict[int, bool] = {}
        self.position = 0
        self.waited, self.remote, self.taken = 0.0, 0, 0
        self._came = Signal()
        self._received: int = 0
        self._receives = Signal()
        for maker in self.makers:
            self.clock.start(self._make(maker))
        self.clock.start(self._train())
        if self.costs["receive_seconds"]:
            self.clock.start(self._receive())
        self._assign()

    def _assign(self) -> None:
        """As `penstock.data.queue.assignment`: the lowest step to whoever has least to do."""
        window = self.position + PREFETCH * len(self.makers)
        able = [one for one in self.makers if not (one.remote and self._none_remote)]
        fastest = min((one.seconds for one in able if one.seconds), default=0.0)
        while True:
            rooms = []
            for maker in able:
                credits_ = credits_of(PREFETCH, maker.seconds, fastest, self._size)
                most = max(credits_, PREFETCH) if self._share is not None else credits_
                if len(maker.asked) < most:
                    rooms.append((len(maker.asked) / most, maker))
            given = False
            for _, maker in sorted(rooms, key=lambda room: room[0]):
                if (step := self._next(maker, window)) is not None:
                    maker.asked.append(step)
                    self.clock.notify(maker.wakes)
                    given = True
                    break
            if not given:
                return

    def _next(self, maker: _Maker, window: int) -> int | None:
        """The lowest free step, which a forced share may have for the other side."""
        for step in self._kept:
            if self._suits(step, maker):
                self._kept.remove(step)
                return step
        while self._free < window:
            step, self._free = self._free, self._free + 1
            if self._suits(step, maker):
                return step
            self._kept.append(step)
        return None

    def _suits(self, step: int, maker: _Maker) -> bool:
        return self._share is None or is_remote(step, self._share) == maker.remote

    def _make(self, maker: _Maker) -> Process:
        costs, side = self.costs, "remote" if maker.remote else "local"
        slower = costs["slowness"] if maker.remote else 1.0
        while True:
            while not maker.asked:
                yield maker.wakes
            step, begun = maker.asked[0], self.clock.now
            for name, seconds in (
                ("storage", costs["storage_seconds"]),
                (side, costs["seconds"] * slower * self._draw.uniform(0.8, 1.2)),
                ("link", costs["link_seconds"] if maker.remote else 0.0),
            ):
                if seconds:
                    yield self._permits[name]
                    yield seconds
                    self.clock.release(self._permits[name])
            maker.asked.popleft()
            maker.seconds = self.clock.now - begun
            maker.busy += maker.seconds
            self._ready[step] = maker.remote
            self.clock.notify(self._came)
            self._assign()

    def _train(self) -> Process:
        while True:
            asked = self.clock.now
            while self.position not in self._ready:
                yield self._came
            self.waited += self.clock.now - asked
            remote = self._ready.pop(self.position)
            self.position, self.taken = self.position + 1, self.taken + 1
            self.remote += remote
            self._assign()
            if remote and self.costs["receive_seconds"]:
                while self._received >= _RECEIVING:
                    yield self._receives
                self._received += 1
                self.clock.notify(self._receives)
            yield self.costs["step_seconds"]

    def _receive(self) -> Process:
        while True:
            while not self._received:
                yield self._receives
            many, self._received = self._received, 0
            self.clock.notify(self._receives)
            yield self._permits["local"]
            yield many * self.costs["receive_seconds"]
            self.clock.release(self._permits["local"])


class VirtualMachine:
    """In the place of `benchmarks.offloading.machine.Machine`, for permits."""

    def __init__(self, environment: Environment, workloads: list[Workload], seed: int) -> None:
        self.environment = environment
        self.workers = 0
        self._workloads = {one.name: one for one in workloads}
        self._seed = seed
        self._runs = 0

    async def set_workers(self, number: int) -> None:
        """Have so many data workers."""
        self.workers = number

    async def run(
        self, name: str, share: float | None, seconds: float, *, half: int = CALIBRATION
    ) -> Run:
        """As on a machine; ``half`` says nothing, since every run draws its own samples."""
        del half
        return self._run(name, share, seconds)[0]

    async def profile(self, name: str, seconds: float) -> tuple[Profile | None, Run]:
        """What a job's trainer makes of a run without data workers."""
        run, made = self._run(name, 0.0, seconds)
        workload = self._workloads[name]
        interval = Interval(
            seconds=seconds,
            taken=run.rate * seconds,
            waited_seconds=run.waited * seconds,
            cpu_seconds=0.0,
            received_bytes=0.0,
            batch_bytes=max(workload.batch_bytes, 1024.0),
            cores=64.0,
            workers=self.environment.local,
            local=made,
        )
        return profile_of(name, [interval]), run

    def _run(self, name: str, share: float | None, seconds: float) -> tuple[Run, Making]:
        self._runs += 1
        workload = self._workloads[name]
        seed = 1000 * self._seed + self._runs
        training = Training(self.environment, workload, self.workers, share, seed)
        training.clock.run(SKIPPED_SECONDS)
        before = training.taken, training.remote, training.waited, self._busy(training)
        training.clock.run(SKIPPED_SECONDS + seconds)
        taken, remote = training.taken - before[0], training.remote - before[1]
        busy = self._busy(training) - before[3]
        waited = min(1.0, (training.waited - before[2]) / seconds)
        local = max(1, taken - remote)
        run = Run(taken / seconds, waited, remote / taken, 0.0, busy / taken, self.workers)
        # A permit is held as if it were a core; to wait for one is to be blocked, as on a machine.
        return run, Making(local, busy, 0.0, 0.0, 0.0)

    @staticmethod
    def _busy(training: Training) -> float:
        return sum(one.busy for one in training.makers if not one.remote)
