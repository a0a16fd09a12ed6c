"""The best that any planner could do: every integer configuration, tried on the truth itself.

For every number of servers, every size of a worker and every number of workers, the sizes of the
single servers are chosen to the best: for a speed R that is hoped for, each server needs a least
whole number of cores, which is found exactly, and the largest R whose needs fit the quota is found
by bisection. Nothing within the quota, in whole cores, is faster than `exhaustive`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.sim.ps.jobs.model import PsConfig, PsJobModel, speed, think_seconds
from penstock.sim.ps.jobs.random_models import PsCase

Floats = npt.NDArray[np.floating[Any]]

MOST_SERVERS: Final = 24
_CHUNK: Final = 48


@dataclass(frozen=True, slots=True)
class Best:
    """A configuration and its speed."""

    config: PsConfig
    steps_per_second: float


def exhaustive(case: PsCase) -> Best:
    """The fastest configuration of whole cores within the quota; servers may differ in size."""
    model, quota, largest = case.model, case.cores, case.pod_cores
    best_speed, best_key = 0.0, (0, 0, 0)
    most_cores = min(largest, int(np.ceil(model.compute_cores + model.worker_idle_cores)))
    for servers in range(1, min(MOST_SERVERS, quota - 1) + 1):
        work = np.asarray(model.server_work(servers))
        pairs = np.array(list(_pairs(case, servers)))
        if not len(pairs):
            continue
        counts, cores = pairs[:, 0].astype(float), pairs[:, 1]
        think = np.array(
            [think_seconds(model, float(c), servers) for c in range(1, most_cores + 1)]
        )
        think = think[cores - 1]
        left = (quota - pairs[:, 0] * cores).astype(float)
        # No configuration is faster than its workers alone, or than its servers fully used.
        bound = np.minimum(counts / think, left / work.sum())
        bound = np.minimum(bound, largest / work.max())
        order = np.argsort(-bound)
        for start in range(0, len(order), _CHUNK):
            chunk = order[start : start + _CHUNK]
            if bound[chunk[0]] <= best_speed * (1 + 1e-9):
                break
            reached = _fastest(
                model, work, counts[chunk], think[chunk], left[chunk], bound[chunk], largest
            )
            top = int(np.argmax(reached))
            if reached[top] > best_speed:
                best_speed = float(reached[top])
                best_key = (servers, int(counts[chunk[top]]), int(cores[chunk[top]]))
    servers, count, size = best_key
    return _rebuilt(case, servers, count, size, best_speed)


def least_cores(case: PsCase, steps_per_second: float) -> int | None:
    """The fewest whole cores within the quota that make a speed; None where no number does."""
    model, least = case.model, np.inf
    for servers in range(1, min(MOST_SERVERS, case.cores - 1) + 1):
        work = np.asarray(model.server_work(servers))
        pairs = np.array(list(_pairs(case, servers)))
        if not len(pairs):
            continue
        think = np.array([think_seconds(model, float(c), servers) for c in pairs[:, 1]])
        slack = pairs[:, 0] / steps_per_second - think
        hoped = np.full(len(pairs), steps_per_second)
        needed = _needed(model, work, hoped, slack, case.pod_cores)
        fits = (needed <= case.pod_cores).all(axis=1) & (slack > 0)
        total = np.where(fits, pairs[:, 0] * pairs[:, 1] + needed.sum(axis=1), np.inf)
        least = min(least, float(total.min()))
    return round(least) if least <= case.cores else None


def _pairs(case: PsCase, servers: int) -> Iterator[tuple[int, int]]:
    widest = int(np.ceil(case.model.compute_cores + case.model.worker_idle_cores))
    for cores in range(1, min(case.pod_cores, widest) + 1):
        for count in range(1, min(case.most_workers, (case.cores - servers) // cores) + 1):
            yield count, cores


def well_tuned(case: PsCase) -> Best:
    """What a patient person finds (DLRover, Table 2): workers of the CPU that one uses, rounded up,
    servers of one size (8, 16 or the largest pod), and the best number of each.
    """
    model = case.model
    alone = speed(model, PsConfig(workers=(float(case.pod_cores),), servers=(case.pod_cores,) * 2))
    worker = min(float(np.ceil(alone.worker_cores[0])), float(case.pod_cores))
    best = Best(PsConfig(workers=(worker,), servers=(1.0,)), 0.0)
    for size in sorted({8, 16, case.pod_cores}):
        for servers in range(1, MOST_SERVERS + 1):
            count = min(int((case.cores - servers * size) // worker), case.most_workers)
            if count < 1:
                break
            config = PsConfig(workers=(worker,) * count, servers=(float(size),) * servers)
            reached = speed(model, config).steps_per_second
            if reached > best.steps_per_second:
                best = Best(config, reached)
    return best


def _needed(model: PsJobModel, work: Floats, hoped: Floats, slack: Floats, largest: int) -> Floats:
    """Least whole cores of each server, (cases, servers), at which a step waits at most `slack`;
    above `largest` where no allowed size does it.
    """
    low = np.ones((len(hoped), len(work)))
    high = np.full_like(low, largest + 1.0)
    for _ in range(int(np.ceil(np.log2(largest + 1))) + 1):
        middle = np.floor((low + high) / 2)
        load = hoped[:, None] * work / middle
        with np.errstate(divide="ignore", invalid="ignore"):
            waiting = (
                model.queueing
                * (work / middle)
                * load**model.queueing_exponent
                / np.maximum(1 - load, 1e-12)
            )
        total = model.exposed * work / np.minimum(middle, model.update_cores) + waiting
        enough = (load < 1) & (total <= slack[:, None])
        high = np.where(enough, middle, high)
        low = np.where(enough, low, np.minimum(middle + 1, high))
    return high


def _fastest(
    model: PsJobModel,
    work: Floats,
    counts: Floats,
    think: Floats,
    left: Floats,
    bound: Floats,
    largest: int,
) -> Floats:
    low, high = np.zeros_like(bound), bound.copy()
    for _ in range(26):
        middle = (low + high) / 2
        slack = counts / np.maximum(middle, 1e-12) - think
        needed = _needed(model, work, middle, slack, largest)
        fits = (needed <= largest).all(axis=1) & (needed.sum(axis=1) <= left) & (slack > 0)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def _rebuilt(case: PsCase, servers: int, count: int, size: int, hoped: float) -> Best:
    model = case.model
    work = np.asarray(model.server_work(servers))
    think = think_seconds(model, float(size), servers)
    slack = np.array([count / hoped - think])
    cores = _needed(model, work, np.array([hoped]), slack, case.pod_cores)[0]
    config = PsConfig(workers=(float(size),) * count, servers=tuple(float(core) for core in cores))
    return Best(config, speed(model, config).steps_per_second)
