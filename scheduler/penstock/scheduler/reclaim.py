"""Making room for a GPU pod: what data workers and training workers' surplus give up (pure).

The paper is silent here; decided: first the surplus cores of training workers on the node, then
data workers that can be moved off it, then data workers that are drained for good, those of the
job whose allocation key is the largest first. A job keeps its last data worker of a kind as long as
others will do. A move is start-new, drain-old, and a job is moved at most once in
`MOVE_PAUSE_SECONDS`.

Accelerated data workers go before all others where the pod wants an accelerator, as many as it
lacks at the least, and what cores they free counts before anybody's surplus. Where it wants none
they stay.

The answer is a plan; nothing is taken here. Where even everything would not be enough, there is
none, and nobody gives anything up in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """A data worker on the node; `key` is its job's under the allocation policy.

    `workers_of_job` counts those of its kind: accelerated, or not.
    """

    pod: str
    job: str
    milli_cpu: int
    key: float
    workers_of_job: int
    moved_seconds_ago: float = MOVE_PAUSE_SECONDS
    accelerators: int = 0
    """Of the kind that the waiting pod would take."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """What to do, in this order; pods by name, with what each frees."""

    shrink: tuple[Surplus, ...]
    move: tuple[DataWorker, ...]
    drain: tuple[DataWorker, ...]

    @property
    def freed_milli_cpu(self) -> int:
        """CPU that the plan frees on the node."""
        surplus = sum(part.milli_cpu for part in self.shrink)
        return surplus + sum(worker.milli_cpu for worker in (*self.move, *self.drain))

    @property
    def freed_accelerators(self) -> int:
        """Accelerators that the plan frees on the node."""
        return sum(worker.accelerators for worker in (*self.move, *self.drain))


def reclaim(
    milli_cpu: int,
    surpluses: Sequence[Surplus],
    workers: Sequence[DataWorker],
    fits_elsewhere: Callable[[DataWorker], bool],
    *,
    accelerators: int | None = None,
) -> Reclaim | None:
    """How to free that much on a node; None where it cannot be done.

    Args:
        milli_cpu: what the pod lacks of CPU there.
        surpluses: what training workers there could do without.
        workers: the data workers there.
        fits_elsewhere: reserves room for one worker on another node, or says no; it is asked only
            for workers that would be moved, so the caller undoes its reservations where None is
            returned.
        accelerators: what the pod lacks of them; None: it wants none.
    """
    able = [one for one in workers if accelerators is not None or not one.accelerators]
    lacking = accelerators or 0
    spare = sum(part.milli_cpu for part in surpluses)
    if milli_cpu > spare + sum(one.milli_cpu for one in able):
        return None
    if lacking > sum(one.accelerators for one in able):
        return None
    leaving = _Leaving(able, fits_elsewhere)
    leaving.free(0, lacking, [one for one in leaving.order if one.accelerators])
    shrink: list[Surplus] = []
    for surplus in sorted(surpluses, key=lambda part: (-part.milli_cpu, part.pod)):
        left = milli_cpu - leaving.freed_milli_cpu - sum(part.milli_cpu for part in shrink)
        if left <= 0:
            break
        shrink.append(Surplus(surplus.pod, min(left, surplus.milli_cpu)))
    given = sum(part.milli_cpu for part in shrink)
    leaving.free(milli_cpu - given, lacking, leaving.order)
    return Reclaim(tuple(shrink), tuple(leaving.move), tuple(leaving.drain))


class _Leaving:
    """Who leaves the node, each once: accelerated ones first, then by the largest key."""

    def __init__(
        self, workers: Iterable[DataWorker], fits_elsewhere: Callable[[DataWorker], bool]
    ) -> None:
        self.order = sorted(workers, key=lambda one: (not one.accelerators, -one.key, one.pod))
        self.move: list[DataWorker] = []
        self.drain: list[DataWorker] = []
        self._fits_elsewhere = fits_elsewhere
        self._left = {_kind(one): one.workers_of_job for one in self.order}
        self._staying: set[str] = set()
        """Pods that were asked for in vain whether they fit elsewhere."""

    @property
    def freed_milli_cpu(self) -> int:
        return sum(one.milli_cpu for one in (*self.move, *self.drain))

    @property
    def _freed_accelerators(self) -> int:
        return sum(one.accelerators for one in (*self.move, *self.drain))

    def _enough(self, milli_cpu: int, accelerators: int) -> bool:
        return self.freed_milli_cpu >= milli_cpu and self._freed_accelerators >= accelerators

    def free(self, milli_cpu: int, accelerators: int, workers: Sequence[DataWorker]) -> None:
        """Have as many of these leave as it takes to free so much in all."""
        for worker in workers:
            if self._enough(milli_cpu, accelerators):
                return
            if not self._leaves(worker) and self._moves(worker):
                self.move.append(worker)
        for spare_last in (True, False):  # the last of a job only when all others are gone
            for worker in workers:
                if self._enough(milli_cpu, accelerators):
                    return
                kind = _kind(worker)
                if self._leaves(worker) or (spare_last and self._left[kind] <= 1):
                    continue
                self.drain.append(worker)
                self._left[kind] -= 1

    def _moves(self, worker: DataWorker) -> bool:
        if worker.moved_seconds_ago < MOVE_PAUSE_SECONDS or worker.pod in self._staying:
            return False
        if self._fits_elsewhere(worker):
            return True
        self._staying.add(worker.pod)
        return False

    def _leaves(self, worker: DataWorker) -> bool:
        return any(one is worker for one in (*self.move, *self.drain))


def _kind(worker: DataWorker) -> tuple[str, bool]:
    return worker.job, worker.accelerators > 0
