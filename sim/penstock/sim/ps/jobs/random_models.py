"""Job models and quotas drawn at random; the distributions are in ``docs/simulation-ps.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.sim.ps.jobs.model import GIB, PsJobModel

MOST_WORKERS: Final = 100
"""``maxReplicas`` of the workers of every random job."""


@dataclass(frozen=True, kw_only=True)
class PsCase:
    """A job, its quota and the largest pod, in cores."""

    model: PsJobModel
    cores: int
    pod_cores: int
    most_workers: int = MOST_WORKERS


def random_cases(count: int, seed: int) -> list[PsCase]:
    """`count` cases; case k of a seed is the same whatever the count."""
    return [random_case(index, seed) for index in range(count)]


def random_case(index: int, seed: int) -> PsCase:
    """Case `index` of a seed."""
    rng = np.random.default_rng([seed, index])
    step = _log_uniform(rng, 0.05, 0.4)
    worker_used, server_used = _log_uniform(rng, 1.5, 20.0), _log_uniform(rng, 0.8, 8.0)
    computing = rng.uniform(0.6, 0.97)
    exposed = rng.uniform(0.05, 0.3)
    update, update_cores = server_used * step, float(rng.choice([8, 16, 32]))
    # What is hidden of an update leaves at least half of the rest of a step to reading.
    base = min(exposed * update / update_cores, 0.5 * (1 - computing) * step)
    tensors = rng.lognormal(0.0, rng.uniform(0.3, 1.2), round(_log_uniform(rng, 10, 80)))
    cores = int(rng.choice([100, 150, 200, 300]))
    # Roughly what the whole quota gives: sets the length of the job, nothing else.
    reachable = cores / (worker_used + server_used) / step
    model = PsJobModel(
        name=f"random-{index}",
        io_seconds=(1 - computing) * step - base,
        server_io_seconds=rng.uniform(0.0, 0.004) * step,
        compute_core_seconds=worker_used * step,
        compute_cores=worker_used / computing,
        worker_idle_cores=rng.uniform(0.05, 0.3),
        update_core_seconds=update,
        update_cores=update_cores,
        exposed=base * update_cores / update,
        queueing=_log_uniform(rng, 0.1, 0.6),
        queueing_exponent=rng.uniform(1.5, 3.0),
        tensors=tuple(float(size) for size in tensors),
        parameter_bytes=_log_uniform(rng, 1.0, 24.0) * GIB,
        worker_bytes=_log_uniform(rng, 1.0, 6.0) * GIB,
        steps=round(_log_uniform(rng, 1.0, 6.0) * 3600 * reachable),
        noise=rng.uniform(0.01, 0.04),
    )
    return PsCase(model=model, cores=cores, pod_cores=32)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
