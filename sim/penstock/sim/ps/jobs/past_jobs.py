"""Finished jobs drawn at random, for planning the first configuration of new ones.

Jobs come in families: a team trains a model on a dataset, again and again, with small differences.
What users ask for is drawn as the paper found it (DLRover, section 1): more than 80 % of jobs use
less than half of what they were given, and about 5 % were given too little memory. Distributions:
``docs/simulation-ps.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.base.enums import Role, Strategy
from penstock.brain.planning import PastJob, RoleUsage, Signature
from penstock.sim.ps.jobs.model import GIB

DAY: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one role of a job really uses: all replicas together, and the fullest one."""

    replicas: int
    milli_cpu: float
    hottest_milli_cpu: float
    peak_memory_bytes: float
    total_memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What its user asked for, for one role."""

    replicas: int
    milli_cpu: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class GeneratedJob:
    """A job with what it needs and what its user would have asked for."""

    uid: str
    signature: Signature
    finished_seconds: float
    needs: dict[Role, Need]
    asked: dict[Role, Asked]
    out_of_memory: frozenset[Role]

    def past(self) -> PastJob:
        """The job as the Brain remembers it."""
        return PastJob(
            uid=self.uid,
            signature=self.signature,
            strategy=Strategy.PARAMETER_SERVER,
            finished_seconds=self.finished_seconds,
            succeeded=True,
            roles={
                role: RoleUsage(
                    replicas=need.replicas,
                    milli_cpu=need.milli_cpu,
                    hottest_milli_cpu=need.hottest_milli_cpu,
                    peak_memory_bytes=round(need.peak_memory_bytes),
                    total_memory_bytes=round(need.total_memory_bytes),
                )
                for role, need in self.needs.items()
            },
            out_of_memory=self.out_of_memory,
        )


@dataclass(frozen=True, kw_only=True)
class _Family:
    signature: Signature
    workers: int
    worker_milli_cpu: float
    worker_bytes: float
    servers: int
    servers_milli_cpu: float
    parameter_bytes: float
    uneven: float
    spread: float


def generate(count: int, seed: int, *, now: float, window: float = 7 * DAY) -> list[GeneratedJob]:
    """`count` jobs that finished in the `window` seconds before `now`; seeded."""
    rng = np.random.default_rng([seed, 2])
    families = [_family(rng, index) for index in range(max(1, count // 12))]
    # Some families run many times a day, most now and then.
    popularity = rng.pareto(1.2, len(families)) + 0.3
    chosen = rng.choice(len(families), count, p=popularity / popularity.sum())
    return [
        _job(rng, families[family], f"job-{index}", now - float(rng.uniform(0, window)))
        for index, family in enumerate(chosen)
    ]


def _family(rng: np.random.Generator, index: int) -> _Family:
    model, dataset, user = rng.integers(0, [40, 60, 50])
    return _Family(
        signature=Signature(
            model=f"model-{model}", dataset=f"table-{dataset}", user=f"user-{user}"
        ),
        workers=round(_log_uniform(rng, 2, 60)),
        worker_milli_cpu=_log_uniform(rng, 1500, 20_000),
        worker_bytes=_log_uniform(rng, 1, 12) * GIB,
        servers=round(_log_uniform(rng, 1, 12)),
        servers_milli_cpu=_log_uniform(rng, 4_000, 120_000),
        parameter_bytes=_log_uniform(rng, 1, 96) * GIB,
        uneven=float(rng.uniform(1.0, 1.8)),
        spread=float(rng.uniform(0.02, 0.15)),
    )


def _job(rng: np.random.Generator, family: _Family, uid: str, finished: float) -> GeneratedJob:
    def about(value: float) -> float:
        return float(value * rng.lognormal(0.0, family.spread))

    workers = max(1, round(about(family.workers)))
    worker_cpu, worker_bytes = about(family.worker_milli_cpu), about(family.worker_bytes)
    servers = family.servers
    servers_cpu, parameters = about(family.servers_milli_cpu), about(family.parameter_bytes)
    uneven = min(family.uneven, servers) if servers > 1 else 1.0
    # One job in fifty is unlike its family: an experiment, or a fault.
    if rng.random() < 0.02:
        factor = float(_log_uniform(rng, 0.2, 5.0))
        worker_cpu, servers_cpu = worker_cpu * factor, servers_cpu * factor
    needs = {
        Role.WORKER: Need(
            replicas=workers,
            milli_cpu=workers * worker_cpu,
            hottest_milli_cpu=worker_cpu * 1.05,
            peak_memory_bytes=worker_bytes * 1.05,
            total_memory_bytes=workers * worker_bytes,
        ),
        Role.PS: Need(
            replicas=servers,
            milli_cpu=servers_cpu,
            hottest_milli_cpu=servers_cpu / servers * uneven,
            peak_memory_bytes=parameters / servers * uneven,
            total_memory_bytes=parameters,
        ),
    }
    return GeneratedJob(
        uid=uid,
        signature=family.signature,
        finished_seconds=finished,
        needs=needs,
        asked=(asked := {role: _asked(rng, need) for role, need in needs.items()}),
        out_of_memory=frozenset(
            role
            for role, need in needs.items()
            if asked[role].memory_bytes < need.peak_memory_bytes
        ),
    )


def _asked(rng: np.random.Generator, need: Need) -> Asked:
    """Between 1.2 and 8 times the need, most above twice; 3 % of roles below it in memory."""
    memory = need.peak_memory_bytes * (
        rng.uniform(0.5, 0.98) if rng.random() < 0.03 else 1.2 + rng.gamma(2.5, 0.9)
    )
    return Asked(
        replicas=need.replicas,
        milli_cpu=need.milli_cpu / need.replicas * (1.2 + rng.gamma(2.5, 0.9)),
        memory_bytes=float(memory),
    )


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))
