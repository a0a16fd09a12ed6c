"""The throughput of a job with parameter servers, fitted to what was measured.

The model is DLRover's (section 4.1, equation 1), with the update's share on each server kept apart
and with queueing where servers come near their capacity:

    t_step = a + o N_ps + W_c / min(w - g, P) + max_j (theta D_j / min(s_j, 16)
             + v (D_j / s_j) rho_j^e / (1 - rho_j)),      rho_j = R D_j / s_j,     R = N_w / t_step

CPU accounting gives the work directly: D_j is the CPU of server j over the speed, W_c and the idle
cost g of a worker follow from its CPU at different speeds. The times a, o, theta and v are fitted
by non-negative least squares on all measurements, with weak priors that decide what the first
measurement cannot. P and e enter non-linearly: a small set of hypotheses covers them, each
is fitted, and each counts by how well it explains the measurements. Predictions are the weighted
mean over the hypotheses; their spread is the error bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.brain.model.measurement import Measurement
from penstock.brain.model.nnls import nnls
from penstock.brain.model.ps_tensors import infer, spread

Floats = npt.NDArray[np.floating[Any]]

_UPDATE_CORES: Final = 16.0
_IDLE_CORES: Final = (0.15, 0.08)
"""Prior of g: mean and standard deviation, in cores."""
_PARALLELISM: Final = (1.0, 1.12, 1.3, 1.6)
"""Hypotheses of P over the CPU that an unhindered worker uses on average."""
_QUEUEING: Final = ((1.6, 0.15), (2.2, 0.3), (2.2, 0.6), (3.0, 0.4))
"""Hypotheses of (e, prior mean of v)."""
_ONE_TENSOR: Final = 0.8
"""How much of the surplus of the fullest server is one tensor, as far as is known."""
_LEAST_HEAVY: Final = 0.01
_MOST_HEAVY: Final = 0.5
"""Bounds of the part of all updates that one tensor is assumed to take."""
_BISECTIONS: Final = 30


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted hypotheses: arrays of shape (hypotheses,), except the shares of the work.

    `work` is core-seconds of update per step on each server, by the numbers of servers that were
    measured; `newest` is the last of these numbers. `tensors` are the shares of whole tensors,
    where the measurements tell them.
    """

    work: Mapping[int, Floats]
    tensors: Floats | None
    newest: int
    compute_core_seconds: float
    idle_cores: float
    parallelism: Floats
    exponent: Floats
    fixed_seconds: Floats
    server_seconds: Floats
    exposed: Floats
    queueing: Floats
    weight: Floats
    noise: float

    def speeds(self, workers: Floats, worker_cores: Floats, server_cores: Floats) -> Floats:
        """Steps per second of candidates, (candidates, hypotheses).

        `workers` and `worker_cores` have shape (candidates,), `server_cores` (candidates,
        servers). For the number of servers that was measured the shares are known; for another
        one they are assumed as uneven as those.
        """
        work = self.work_on(server_cores.shape[1])
        usable = np.maximum(worker_cores - self.idle_cores, 0.05)[:, None]
        think = (
            self.fixed_seconds
            + self.server_seconds * server_cores.shape[1]
            + self.compute_core_seconds / np.minimum(usable, self.parallelism)
        )
        each = work / server_cores
        base = self.exposed * (work / np.minimum(server_cores, _UPDATE_CORES)).max(axis=1)[:, None]
        # The server with the most work per core is the fullest and queues most.
        worst = each.max(axis=1)[:, None]
        low = np.zeros((len(workers), len(self.weight)))
        high = np.broadcast_to(1 / worst, low.shape).copy()
        count = workers[:, None]
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            load = middle * worst
            wait = self.queueing * worst * load**self.exponent / np.maximum(1 - load, 1e-9)
            reached = count / (think + base + wait)
            low = np.where(reached > middle, middle, low)
            high = np.where(reached > middle, high, middle)
        return low

    def predict(
        self, workers: int, worker_cores: float, servers: Sequence[float]
    ) -> tuple[float, float]:
        """Expected steps per second, and the half-width that 9 in 10 outcomes fall within."""
        speeds = self.speeds(np.array([workers]), np.array([worker_cores]), np.array([servers]))[0]
        mean = float(self.weight @ speeds)
        spread = math.sqrt(float(self.weight @ (speeds - mean) ** 2))
        return mean, 1.645 * math.hypot(spread, self.noise * mean)

    def work_on(self, servers: int) -> Floats:
        """Core-seconds of update per step on each of `servers` servers.

        A number never measured has the same total. Where the tensors are not known, one heavy
        tensor is assumed, which stays whole, with the rest spread evenly. It is nearly as heavy as
        the measured numbers allow: some of what the fullest server has above the others are tensors
        that met by chance.
        """
        known = self.work.get(servers)
        if known is not None:
            return known
        total = float(self.work[self.newest].sum())
        if self.tensors is not None:
            told: Floats = np.maximum(total * spread(self.tensors, servers), 1e-6)
            return told
        heavy = min(
            (float(work.max() / work.sum()) * count - 1) / (count - 1) if count > 1 else 1.0
            for count, work in self.work.items()
        )
        heavy = min(max(_ONE_TENSOR * heavy, _LEAST_HEAVY), _MOST_HEAVY)
        rest = (1 - heavy) / servers
        return total * np.array([heavy + rest] + [rest] * (servers - 1))


def fit(runs: Sequence[Measurement], timed: Sequence[Measurement] | None = None) -> Fit:
    """Fit the model to the measurements of one job, oldest first; at least one.

    Args:
        runs: all of them: the CPU of each tells the work of its servers and workers.
        timed: those whose speed is the job's own; None: all. Where something outside the job set
            the speed, it says nothing about the times of the model.
    """
    timed = runs if timed is None else timed
    newest = len(runs[-1].server_cores)
    by_count: dict[int, list[Measurement]] = {}
    for run in runs:
        by_count.setdefault(len(run.server_cores), []).append(run)
    works = {count: _server_work(same) for count, same in by_count.items()}
    compute, idle = _worker_work(runs)
    widest = max(timed, key=lambda run: (run.worker_cores, -run.workers))
    free = max(widest.worker_used_cores - idle, 0.05)
    parallel, exponent, queueing = (
        np.array(values)
        for values in zip(
            *((p * free, e, v) for p in _PARALLELISM for e, v in _QUEUEING), strict=True
        )
    )
    # What limited the widest worker may have been its size.
    parallel = np.maximum(parallel, free)
    seconds = np.array([run.workers / run.steps_per_second for run in timed])
    errors = np.array([_relative_error(run) for run in timed])
    rows, values = [], []
    for run, step, error in zip(timed, seconds, errors, strict=True):
        own = works[len(run.server_cores)]
        cores = np.array(run.server_cores)
        load = np.minimum(run.steps_per_second * own / cores, 0.985)
        base = float((own / np.minimum(cores, _UPDATE_CORES)).max())
        waits = (own / cores)[:, None] * load[:, None] ** exponent / (1 - load[:, None])
        usable = np.minimum(max(run.worker_cores - idle, 0.05), parallel)
        weight = 1 / (step * error)
        one = np.ones_like(exponent)
        features = [one, one * len(cores), one * base, waits.max(axis=0)]
        rows.append(np.stack(features, axis=1) * weight)
        values.append((step - compute / usable) * weight)
    unhindered = float(min(seconds))
    rest = max(unhindered - compute / free, 0.02 * unhindered)
    priors = [
        (0, rest, unhindered),
        (1, 0.002 * unhindered, 0.0015 * unhindered),
        (2, 0.15, 0.12),
    ]
    for index, mean, deviation in priors:
        rows.append(_only(index, len(exponent)) / deviation)
        values.append(np.full(len(exponent), mean / deviation))
    rows.append(_only(3, len(exponent)) / (0.6 * queueing)[:, None])
    values.append(np.full(len(exponent), 1 / 0.6))
    solution, loss = nnls(np.stack(rows, axis=1), np.stack(values, axis=1))
    weight = np.exp(-(loss - loss.min()) / 2)
    return Fit(
        work=works,
        tensors=infer(works),
        newest=newest,
        compute_core_seconds=compute,
        idle_cores=idle,
        parallelism=parallel,
        exponent=exponent,
        fixed_seconds=solution[:, 0],
        server_seconds=solution[:, 1],
        exposed=solution[:, 2],
        queueing=solution[:, 3],
        weight=weight / weight.sum(),
        noise=float(errors[-1]),
    )


def _relative_error(run: Measurement) -> float:
    # The model is not the truth: no measurement binds it closer than 1 %.
    return max(run.error_steps_per_second / run.steps_per_second, 0.01)


def _server_work(runs: Sequence[Measurement]) -> Floats:
    """Core-seconds per step on each server, each run counted by its samples."""
    weights = np.array([run.samples for run in runs], dtype=float)
    each = np.array([np.array(run.server_used_cores) / run.steps_per_second for run in runs])
    work: Floats = np.maximum(weights @ each / weights.sum(), 1e-6)
    return work


def _worker_work(runs: Sequence[Measurement]) -> tuple[float, float]:
    """Core-seconds of computation per step (W_c), and the idle cores of a worker (g)."""
    rate = np.array([run.steps_per_second / run.workers for run in runs])
    used = np.array([run.worker_used_cores for run in runs])
    error = 0.02 * used
    rows = np.concatenate(
        [np.stack([rate, np.ones_like(rate)], axis=1) / error[:, None], [[0, 1 / _IDLE_CORES[1]]]]
    )
    values = np.concatenate([used / error, [_IDLE_CORES[0] / _IDLE_CORES[1]]])
    solution, _ = nnls(rows[None], values[None])
    return float(max(solution[0, 0], 1e-6)), float(min(solution[0, 1], 0.9 * used.min()))


def _only(index: int, count: int) -> Floats:
    row = np.zeros((count, 4))
    row[:, index] = 1
    return row
