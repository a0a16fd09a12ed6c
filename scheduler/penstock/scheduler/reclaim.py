"""Making room for a GPU pod that lacks only CPU: what elastic CPU work gives up (pure).

The paper is silent here; decided: first the surplus cores of training workers on the node, then
data workers that can be moved off it, then data workers that are drained for good, those of the
job whose allocation key is the largest first. A job keeps its last data worker as long as others
will do. A move is start-new, drain-old, and a job is moved at most once in `MOVE_PAUSE_SECONDS`.

The answer is a plan; nothing is taken here. Where even everything would not be enough, there is
none, and nobody gives anything up in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

MOVE_PAUSE_SECONDS: Final = 300.0
"""How long a job that was moved is not moved again."""


@dataclass(frozen=True, slots=True)
class Surplus:
    """Cores that a training worker on the node does not need."""

    pod: str
    milli_cpu: int


@dataclass(frozen=True, slots=True)
class DataWorker:
    """A data worker on the node; `key` is its job's under the allocation policy."""

    pod: str
    job: str
    milli_cpu: int
    key: float
    workers_of_job: int
    moved_seconds_ago: float = MOVE_PAUSE_SECONDS


@dataclass(frozen=True, slots=True)
class Reclaim:
    """What to do, in this order; pods by name, with the CPU that each frees."""

    shrink: tuple[Surplus, ...]
    move: tuple[DataWorker, ...]
    drain: tuple[DataWorker, ...]

    @property
    def freed_milli_cpu(self) -> int:
        """CPU that the plan frees on the node."""
        surplus = sum(part.milli_cpu for part in self.shrink)
        return surplus + sum(worker.milli_cpu for worker in (*self.move, *self.drain))


def reclaim(
    milli_cpu: int,
    surpluses: Sequence[Surplus],
    workers: Sequence[DataWorker],
    fits_elsewhere: Callable[[DataWorker], bool],
) -> Reclaim | None:
    """How to free that much CPU on a node; None where it cannot be done.

    `fits_elsewhere` reserves room for one worker on another node, or says no; it is asked only
    for workers that would be moved, so the caller undoes its reservations where None is returned.
    """
    lacking = milli_cpu
    shrink: list[Surplus] = []
    for surplus in sorted(surpluses, key=lambda part: (-part.milli_cpu, part.pod)):
        if lacking <= 0:
            break
        given = min(lacking, surplus.milli_cpu)
        shrink.append(Surplus(surplus.pod, given))
        lacking -= given
    if lacking > sum(worker.milli_cpu for worker in workers):
        return None
    ordered = sorted(workers, key=lambda worker: (-worker.key, worker.pod))
    move: list[DataWorker] = []
    for worker in ordered:
        if lacking <= 0:
            break
        if worker.moved_seconds_ago >= MOVE_PAUSE_SECONDS and fits_elsewhere(worker):
            move.append(worker)
            lacking -= worker.milli_cpu
    moved = {worker.pod for worker in move}
    drain = _drained(lacking, [worker for worker in ordered if worker.pod not in moved])
    return Reclaim(tuple(shrink), tuple(move), tuple(drain))


def _drained(milli_cpu: int, workers: Sequence[DataWorker]) -> list[DataWorker]:
    """The workers to drain: the last one of a job only when all others are gone."""
    left = {worker.job: worker.workers_of_job for worker in workers}
    drained: list[DataWorker] = []
    for spare_last in (True, False):
        for worker in workers:
            if milli_cpu <= 0:
                return drained
            if worker in drained or (spare_last and left[worker.job] <= 1):
                continue
            drained.append(worker)
            left[worker.job] -= 1
            milli_cpu -= worker.milli_cpu
    return drained
