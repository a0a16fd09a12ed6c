"""The configuration of whole cores that a fitted model of a job thinks fastest.

Constraints are DLRover's (3), (5) and (6): the job's quota, the largest pod, whole numbers. The
servers of one number get the quota that the workers leave, in proportion to their work, so that the
one with the largest tensor does not slow the others.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.brain.model.ps_model import Fit

Floats = npt.NDArray[np.floating[Any]]

FULLEST: Final = 0.9
"""Share of its CPU that a server may need where as few cores as possible are looked for."""
SPEEDS_TRIED: Final = 16
"""Of which the cheapest per step is chosen."""
_HALVINGS: Final = 9
_CANDIDATES: Final = 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the search may choose: cores of the job and of a pod, counts of workers."""

    cores: int
    pod_cores: int
    least_workers: int
    most_workers: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration with its predicted speed, in steps per second."""

    workers: int
    worker_cores: int
    server_cores: tuple[int, ...]
    steps_per_second: float

    @property
    def cores(self) -> int:
        """What the configuration counts against the quota."""
        return self.workers * self.worker_cores + sum(self.server_cores)


def best_workers(
    fitted: Fit, bounds: Bounds, server_cores: Sequence[float], sizes: Iterable[int]
) -> Choice | None:
    """The best workers beside servers that stay as they are."""
    left = bounds.cores - sum(server_cores)
    pairs = [(count, size) for size in sizes for count in _counts(bounds, int(left // size))]
    if not pairs:
        return None
    counts, cores = np.array(pairs, dtype=float).T
    servers = np.broadcast_to(np.array(server_cores), (len(pairs), len(server_cores)))
    top, reached = _top(fitted, counts, cores, servers)
    whole = tuple(math.ceil(core) for core in server_cores)
    return Choice(int(counts[top]), int(cores[top]), whole, reached)


def best(fitted: Fit, bounds: Bounds, server_counts: Iterable[int]) -> Choice | None:
    """The best workers and servers over all, for each of the counts of servers."""
    choices = (_best_with(fitted, bounds, count) for count in server_counts)
    found = [choice for choice in choices if choice is not None]
    return max(found, key=lambda choice: choice.steps_per_second, default=None)


def least(
    fitted: Fit, bounds: Bounds, servers: int | Sequence[float], steps_per_second: float
) -> Choice | None:
    """The fewest cores that are predicted to reach a speed, with so many servers or with these.

    None where nothing within the bounds does. Sizes are whole cores, those of new servers by their
    work, with no server above `FULLEST` of its CPU.
    """
    sizes = worker_sizes(fitted, bounds)
    if not isinstance(servers, int):
        return _least_beside(fitted, bounds, servers, steps_per_second)
    pairs = [(count, size) for size in sizes for count in _counts(bounds, bounds.cores // size)]
    if not pairs:
        return None
    counts, cores = np.array(pairs, dtype=float).T
    work = fitted.work_on(servers)
    low = np.full(len(pairs), max(servers, steps_per_second * float(work.sum()) / FULLEST))
    high = np.maximum(bounds.cores - counts * cores, low)

    def reaches(total: Floats) -> npt.NDArray[np.bool_]:
        sizes = _spread(work, total, bounds.pod_cores)
        speeds: Floats = fitted.speeds(counts, cores, sizes) @ fitted.weight
        fits: npt.NDArray[np.bool_] = counts * cores + total <= bounds.cores
        return np.logical_and(fits, speeds >= steps_per_second)

    possible = reaches(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = reaches(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    total = np.where(possible, counts * cores + high, np.inf)
    found: Choice | None = None
    for index in np.argsort(total)[:_CANDIDATES]:
        if not math.isfinite(total[index]):
            break
        worker = int(counts[index]), float(cores[index])
        for more in range(2 * servers):
            whole = allocate(work.tolist(), math.ceil(high[index]) + more, bounds.pod_cores)
            speed = fitted.predict(*worker, [float(core) for core in whole])[0]
            fullest = float((steps_per_second * work / np.array(whole)).max())
            if speed >= steps_per_second and fullest <= FULLEST:
                choice = Choice(worker[0], int(worker[1]), whole, speed)
                if choice.cores <= bounds.cores and (found is None or choice.cores < found.cores):
                    found = choice
                break
    return found


def fewest(
    fitted: Fit,
    bounds: Bounds,
    servers: Iterable[int | Sequence[float]],
    steps_per_second: float,
) -> Choice | None:
    """`least` over several numbers of servers, or servers that stay."""
    choices = [least(fitted, bounds, each, steps_per_second) for each in servers]
    return min((one for one in choices if one is not None), key=_cores, default=None)


def cheapest(
    fitted: Fit, bounds: Bounds, servers: Iterable[int | Sequence[float]], top: float
) -> Choice | None:
    """The least core-seconds of a step among the fewest cores for speeds up to `top`."""
    options = list(servers)
    speeds = (top * part / SPEEDS_TRIED for part in range(1, SPEEDS_TRIED + 1))
    choices = [fewest(fitted, bounds, options, speed) for speed in speeds]
    found = [one for one in choices if one is not None and one.steps_per_second > 0]
    return min(found, key=lambda one: one.cores / one.steps_per_second, default=None)


def _cores(choice: Choice) -> int:
    return choice.cores


def _least_beside(
    fitted: Fit, bounds: Bounds, servers: Sequence[float], steps_per_second: float
) -> Choice | None:
    left = int(bounds.cores - sum(servers))
    sizes = worker_sizes(fitted, bounds)
    pairs = [
        (count, size)
        for size in sizes
        for count in range(max(bounds.least_workers, 1), min(left // size, bounds.most_workers) + 1)
    ]
    if not pairs:
        return None
    counts, cores = np.array(pairs, dtype=float).T
    same = np.broadcast_to(np.array(servers), (len(pairs), len(servers)))
    speeds = fitted.speeds(counts, cores, same) @ fitted.weight
    used = np.where(speeds >= steps_per_second, counts * cores, np.inf)
    top = int(np.argmin(used))
    if not math.isfinite(used[top]):
        return None
    whole = tuple(math.ceil(core) for core in servers)
    return Choice(int(counts[top]), int(cores[top]), whole, float(speeds[top]))


def allocate(work: Sequence[float], cores: int, largest: int) -> tuple[int, ...]:
    """`cores` whole cores over servers, so that the most loaded core has the least to do.

    Each gets at least 1 and at most `largest`; what none may take is left over.
    """
    sizes = [1] * len(work)
    free = shared = cores - len(work)
    total = sum(work)
    # What is certain to be needed at once, the rest one by one: with all rounded up, no core has
    # more to do than total / shared.
    for rank, part in enumerate(work):
        extra = max(0, min(math.floor(shared * part / total), largest) - 1)
        extra = min(extra, free)
        sizes[rank] += extra
        free -= extra
    if free <= 0:
        return tuple(sizes)
    open_ranks = [(-work[rank] / size, rank) for rank, size in enumerate(sizes) if size < largest]
    heapq.heapify(open_ranks)
    while free > 0 and open_ranks:
        _, rank = heapq.heappop(open_ranks)
        sizes[rank] += 1
        free -= 1
        if sizes[rank] < largest:
            heapq.heappush(open_ranks, (-work[rank] / sizes[rank], rank))
    return tuple(sizes)


def _best_with(fitted: Fit, bounds: Bounds, servers: int) -> Choice | None:
    pairs = [
        (count, size)
        for size in worker_sizes(fitted, bounds)
        for count in _counts(bounds, (bounds.cores - servers) // size)
    ]
    if not pairs:
        return None
    counts, cores = np.array(pairs, dtype=float).T
    work = fitted.work_on(servers)
    left = bounds.cores - counts * cores
    # Fractions of a core first, for all pairs at once; whole cores for the best of them.
    rough = _spread(work, left, bounds.pod_cores)
    score = fitted.speeds(counts, cores, rough) @ fitted.weight
    candidates = np.argsort(-score)[:24]
    whole = np.array(
        [allocate(work.tolist(), int(left[index]), bounds.pod_cores) for index in candidates],
        dtype=float,
    )
    top, reached = _top(fitted, counts[candidates], cores[candidates], whole)
    index = candidates[top]
    sizes = tuple(int(size) for size in whole[top])
    return Choice(int(counts[index]), int(cores[index]), sizes, reached)


def worker_sizes(fitted: Fit, bounds: Bounds) -> range:
    """Sizes of a worker that may be worth having: none is wider than the computation."""
    widest = math.ceil(float(fitted.weight @ fitted.parallelism) + fitted.idle_cores)
    return range(1, max(1, min(widest, bounds.pod_cores)) + 1)


def _counts(bounds: Bounds, most: int) -> Iterable[int]:
    """Counts of workers to try: all small ones, then steps of about 4 %."""
    most = min(most, bounds.most_workers)
    count = max(bounds.least_workers, 1)
    while count <= most:
        yield count
        count += max(1, count // 25)
    if most >= max(bounds.least_workers, 1):
        yield most


def _spread(work: Floats, left: Floats, largest: int) -> Floats:
    """Fractional cores by work for each candidate, capped; what a cap leaves goes to the others."""
    sizes = np.maximum(left[:, None] * work / work.sum(), 0.5)
    for _ in range(3):
        capped = np.minimum(sizes, largest)
        spare = (sizes - capped).sum(axis=1, keepdims=True)
        below = np.where(capped < largest, work, 0.0)
        share = below / np.maximum(below.sum(axis=1, keepdims=True), 1e-12)
        sizes = capped + spare * share
    within: Floats = np.minimum(sizes, largest)
    return within


def _top(fitted: Fit, counts: Floats, cores: Floats, servers: Floats) -> tuple[int, float]:
    """Index and speed of the best candidate; of equals within 0.1 %, the one of fewest cores."""
    score = fitted.speeds(counts, cores, servers) @ fitted.weight
    used = counts * cores + servers.sum(axis=1)
    near = np.flatnonzero(score >= score.max() * 0.999)
    top = int(near[np.argmin(used[near])])
    return top, float(score[top])
