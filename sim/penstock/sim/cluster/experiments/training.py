"""Training jobs on a small GPU cluster: strict FIFO, packed, with or without data workers.

Discrete-event: between two events every job runs at a constant speed, the smaller of 1 and its
cores over the cores it needs. Events are submissions, ends, and (for elastic approaches) the
scheduler's interval. Placement and allocation are the scheduler's own code
(`penstock.scheduler.placement`, `penstock.scheduler.policies`), not a model of it.

Invariant: what a job holds is taken from the columns and given back when it ends, so no node is
ever over-committed; a run ends with an empty cluster.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.placement.best_fit import BestFit
from penstock.scheduler.placement.engine import Placement, Placer
from penstock.scheduler.placement.stranding import Stranding
from penstock.scheduler.policies.allocate import MOVE_PAUSE_SECONDS, allocate, rank
from penstock.scheduler.policies.gains import GainEstimate
from penstock.scheduler.policies.policy import AllocationPolicy
from penstock.scheduler.request import Request
from penstock.sim.cluster.job_mix import TrainingJob

INTERVAL_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 300.0
DATA_WORKER_MILLI_CPU: Final = 8_000
LEAST_DATA_WORKER_MILLI_CPU: Final = 1_000
TRAINING_WORKER_MILLI_CPU: Final = 3_000
"""What a training worker keeps once it is tuned (GoldMiner, Fig. 13)."""

LEAST_TRAINING_WORKER_MILLI_CPU: Final = 1_000
"""What a training worker starts with where it is resized in place: it takes in data as fast as the
data comes, so it needs its three cores only at full speed. Its growth is counted with that of the
data workers; that it must happen on the worker's own node is not modelled."""

BUSY_SECONDS: Final = 500 * 60.0
"""GPU allocation is averaged over this time, as in GoldMiner, Fig. 14."""

MODEL_NOISE: Final = 0.05
"""Standard deviation of what a model says that a job needs, as a share."""

_DONE_STEPS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Approach:
    """How jobs get their CPU."""

    name: str
    worker_milli_cpu: int | None = None
    """Per GPU; None for what the model needs for full speed."""
    fixed_data_workers: bool = False
    policy: AllocationPolicy | None = None
    predicted: bool = False
    """A model of each job says what it needs, with `MODEL_NOISE`; all of it is asked for at once.

    Without one a job gets a data worker in an interval and is measured in the next."""


@dataclass(slots=True)
class _Piece:
    request: Request
    placement: Placement


@dataclass(slots=True)
class _Running:
    job: TrainingJob
    started_seconds: float
    remaining_steps: float
    workers: list[_Piece]
    data: list[_Piece] = field(default_factory=list)
    gain: GainEstimate = field(default_factory=GainEstimate)
    wanting_since: float | None = None
    grown_seconds: float = -MOVE_PAUSE_SECONDS
    believed_milli_cpu: float = 0.0
    """What a model says that it needs; 0: there is no model."""
    growths: int = 0
    """Intervals in which it got data workers before its queue was full for the first time."""
    tuned: bool = False

    @property
    def data_milli_cpu(self) -> int:
        return sum(piece.request.milli_cpu for piece in self.data)

    @property
    def milli_cpu(self) -> int:
        return self.data_milli_cpu + sum(piece.request.milli_cpu for piece in self.workers)

    @property
    def speed(self) -> float:
        return min(1.0, self.milli_cpu / self.job.milli_cpu)


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """What became of a run's jobs: means over jobs, in minutes; GPU allocation in percent."""

    jct_minutes: float
    queue_minutes: float
    gpu_allocation: float
    jobs: int
    cpu_wait_share: float = 0.0
    """Of the time that jobs queue: that in which CPU alone is what the first of them lacks."""
    growths: tuple[int, ...] = ()
    """Intervals in which each job got data workers until its queue was full, where it ever was."""


class Cluster:
    """One run of one approach."""

    def __init__(self, approach: Approach, nodes: int, gpus: int, milli_cpu: int) -> None:
        self._approach = approach
        self.columns = NodeTable(capacity=nodes, devices=gpus)
        for index in range(nodes):
            self.columns.add(
                f"node-{index}", milli_cpu=milli_cpu, memory_bytes=0, devices=["gpu"] * gpus
            )
        self._packed = Placer(self.columns, BestFit())
        self._spread = Placer(self.columns, Stranding())
        self._running: dict[str, _Running] = {}
        self._queue: deque[TrainingJob] = deque()
        self._now = 0.0
        self._busy = 0.0
        self._ended: list[tuple[float, float]] = []
        self._next_tick = 0.0
        self._growths: list[int] = []
        self._waited = self._waited_for_cpu = 0.0

    def run(self, jobs: Sequence[TrainingJob]) -> TrainingOutcome:
        """Simulate until every job has ended."""
        to_come = deque(sorted(jobs, key=lambda job: (job.submitted_seconds, job.name)))
        while to_come or self._running or self._queue:
            self._advance(self._next_event(to_come))
            ended = self._end_finished()
            came = False
            while to_come and to_come[0].submitted_seconds <= self._now:
                self._queue.append(to_come.popleft())
                came = True
            started = (ended or came) and self._start_from_queue()
            if self._approach.policy is not None:
                if ended or started:
                    self._next_tick = min(self._next_tick, self._now + INTERVAL_SECONDS)
                if self._now >= self._next_tick:
                    self._tick()
        count = len(self._ended)
        return TrainingOutcome(
            jct_minutes=sum(jct for jct, _ in self._ended) / count / 60 if count else 0.0,
            queue_minutes=sum(queued for _, queued in self._ended) / count / 60 if count else 0.0,
            gpu_allocation=100 * self._busy / (BUSY_SECONDS * self._gpus()),
            jobs=count,
            cpu_wait_share=self._waited_for_cpu / self._waited if self._waited else 0.0,
            growths=tuple(self._growths),
        )

    def _gpus(self) -> float:
        return int(self.columns.total_accelerator_milli.sum()) / 1000

    def _next_event(self, to_come: deque[TrainingJob]) -> float:
        times = [
            self._now + running.remaining_steps / running.speed
            for running in self._running.values()
        ]
        if to_come:
            times.append(to_come[0].submitted_seconds)
        if self._approach.policy is not None and self._running:
            times.append(self._next_tick)
        return max(self._now, min(times))

    def _advance(self, until: float) -> None:
        elapsed = until - self._now
        busy = max(0.0, min(until, BUSY_SECONDS) - min(self._now, BUSY_SECONDS))
        for running in self._running.values():
            running.remaining_steps -= elapsed * running.speed
            self._busy += busy * running.job.gpus
        if self._queue:
            self._waited += elapsed * len(self._queue)
            if int(self.columns.whole_devices.sum()) >= self._queue[0].gpus:
                self._waited_for_cpu += elapsed * len(self._queue)
        self._now = until

    def _end_finished(self) -> bool:
        done = [name for name, run in self._running.items() if run.remaining_steps <= _DONE_STEPS]
        for name in done:
            running = self._running.pop(name)
            for piece in running.workers + running.data:
                self._give(piece)
            submitted = running.job.submitted_seconds
            self._ended.append((self._now - submitted, running.started_seconds - submitted))
        return bool(done)

    def _start_from_queue(self) -> bool:
        started = False
        while self._queue and self._start(self._queue[0]):
            self._queue.popleft()
            started = True
        return started

    def _start(self, job: TrainingJob) -> bool:
        per_gpu = self._approach.worker_milli_cpu or job.model.milli_cpu_per_gpu
        request = Request(milli_cpu=min(per_gpu, job.model.milli_cpu_per_gpu), accelerators=1)
        if self._approach.worker_milli_cpu == DATA_WORKER_MILLI_CPU:
            request = Request(milli_cpu=DATA_WORKER_MILLI_CPU, accelerators=1)
        workers = self._place_workers(job, request)
        if workers is None:
            return False
        running = _Running(job, self._now, job.steps, workers)
        if self._approach.predicted:
            noise = random.Random(job.name).gauss(1.0, MODEL_NOISE)  # noqa: S311  a measurement's error
            running.believed_milli_cpu = job.milli_cpu * max(0.5, noise)
        if self._approach.fixed_data_workers and not self._place_fixed(running):
            for piece in workers + running.data:
                self._give(piece)
            return False
        self._running[job.name] = running
        return True

    def _place_workers(self, job: TrainingJob, request: Request) -> list[_Piece] | None:
        if int(self.columns.free_accelerator_milli.sum()) < 1000 * job.gpus:
            return None
        if self._approach.policy is not None:
            self._make_room(job, request)
        pieces: list[_Piece] = []
        for _ in range(job.gpus):
            placement = self._packed.place(request)
            if placement is None:
                for piece in pieces:
                    self._give(piece)
                return None
            pieces.append(_Piece(request, placement))
        return pieces

    def _place_fixed(self, running: _Running) -> bool:
        """The tuned number of data workers, all of them or none."""
        missing = running.job.milli_cpu - running.milli_cpu
        while missing > 0:
            request = Request(milli_cpu=min(missing, DATA_WORKER_MILLI_CPU))
            placement = self._packed.place(request)
            if placement is None:
                return False
            running.data.append(_Piece(request, placement))
            missing -= request.milli_cpu
        return True

    def _give(self, piece: _Piece) -> None:
        self.columns.give(piece.placement.row, piece.request, piece.placement.devices)

    def _make_room(self, job: TrainingJob, request: Request) -> None:
        """Drain data workers from nodes with free GPUs until the job's training workers fit.

        In the order of the allocation policy, last job first; a job's only data worker is spared
        while another will do. What is drained starts anew elsewhere at the next interval.
        """
        columns = self.columns
        missing = job.gpus
        rows = sorted(
            (int(row) for row in columns.rows()),
            key=lambda row: (
                columns.free_accelerator_milli[row] == 0,
                -columns.free_milli_cpu[row],
            ),
        )
        for row in rows:
            gpus = int(columns.whole_devices[row])
            wanted = min(missing, gpus)
            lacking = wanted * request.milli_cpu - int(columns.free_milli_cpu[row])
            if wanted and lacking > 0:
                self._drain(row, lacking)
            room = int(columns.free_milli_cpu[row]) // max(1, request.milli_cpu)
            missing -= min(wanted, room)
            if missing <= 0:
                return

    def _drain(self, row: int, milli_cpu: int) -> None:
        assert self._approach.policy is not None
        holding = rank(self._rates(), self._approach.policy).holding
        for spare_last in (True, False):
            for rates in holding:
                running = self._running[rates.job]
                for piece in [piece for piece in running.data if piece.placement.row == row]:
                    if milli_cpu <= 0:
                        return
                    if spare_last and len(running.data) == 1:
                        continue
                    running.data.remove(piece)
                    self._give(piece)
                    milli_cpu -= piece.request.milli_cpu

    def _rates(self) -> list[JobRates]:
        rates = []
        for name, running in self._running.items():
            produced = running.milli_cpu / running.job.milli_cpu
            next_milli_cpu = self._next_size(running)
            believed = running.believed_milli_cpu
            modelled = 1 / believed if believed else None
            expected = running.gain.next_gain(next_milli_cpu, modelled)
            gain = min(expected, max(0.0, 1.0 - running.speed))
            missing = max(0.0, believed - running.milli_cpu)
            since = running.wanting_since
            rates.append(
                JobRates(
                    job=name,
                    enqueue=produced,
                    dequeue=1.0,
                    throughput=running.speed,
                    ideal_throughput=1.0,
                    accelerators=running.job.gpus,
                    remaining_steps=max(0.0, running.remaining_steps),
                    data_milli_cpu=running.data_milli_cpu,
                    next_milli_cpu=next_milli_cpu,
                    gain=gain,
                    waiting_seconds=0.0 if since is None else self._now - since,
                    data_workers=len(running.data),
                    at_once=max(1, math.ceil(missing / DATA_WORKER_MILLI_CPU)),
                )
            )
        return rates

    def _next_size(self, running: _Running) -> int:
        missing = running.job.milli_cpu - running.milli_cpu
        return max(LEAST_DATA_WORKER_MILLI_CPU, min(DATA_WORKER_MILLI_CPU, missing))

    def _tick(self) -> None:
        """One interval of the scheduler: measure, then start and drain data workers."""
        assert self._approach.policy is not None
        for running in self._running.values():
            running.gain = running.gain.measured(running.milli_cpu, running.speed)
        rates = self._rates()
        resting = {
            name
            for name, running in self._running.items()
            if self._now - running.grown_seconds < MOVE_PAUSE_SECONDS
        }
        decided = allocate(rates, self._approach.policy, self._grow, resting)
        for name, count in decided.shrink.items():
            for _ in range(count):
                self._give(self._running[name].data.pop())
        grown = set(decided.grow)
        for job in rates:
            running = self._running[job.job]
            if job.job in grown:
                running.grown_seconds = self._now
                running.growths += not running.tuned
            if not running.tuned and running.milli_cpu >= running.job.milli_cpu:
                running.tuned = True
                self._growths.append(running.growths)
            if job.job in grown or not job.starves:
                running.wanting_since = None
            elif running.wanting_since is None:
                running.wanting_since = self._now
        changed = bool(decided.grow or decided.shrink)
        self._next_tick = self._now + (INTERVAL_SECONDS if changed else IDLE_SECONDS)

    def _grow(self, job: JobRates) -> bool:
        """Start the job's next data worker, smaller where only fragments are left."""
        running = self._running[job.job]
        if running.milli_cpu >= running.job.milli_cpu:
            return False
        largest = int(self.columns.free_milli_cpu.max())
        size = min(self._next_size(running), largest - largest % LEAST_DATA_WORKER_MILLI_CPU)
        if size < LEAST_DATA_WORKER_MILLI_CPU:
            return False
        request = Request(milli_cpu=size)
        placement = self._spread.place(request)
        if placement is None:
            return False
        running.data.append(_Piece(request, placement))
        return True
