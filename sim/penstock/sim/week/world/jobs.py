"""The jobs of a week: what each one is, what its user asks for, and when it comes.

Jobs come in families as in `penstock.sim.ps.jobs.past_jobs`: a team trains a model on a dataset
again and again. How a job runs is `penstock.sim.ps.jobs.model`, with the models of `sim ps
--random`; what is new here is what people ask for. A user has found out how much one worker and one
server use when nothing hinders them, and asks for more of it, in whole cores. The users of jobs
with hot servers did so for the mean server, and those of jobs short of CPU for less than it uses.

A job's class is what its run with those requests shows (DLRover, section 6.4), not what was drawn:
jobs are drawn until the shares of the classes are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from penstock.base.enums import Role, Strategy
from penstock.brain.planning import PastJob, RoleUsage, Signature
from penstock.sim.ps.jobs.model import GIB, PsConfig, PsJobModel, PsSpeed, speed
from penstock.sim.ps.jobs.random_models import random_cases
from penstock.sim.week.world.assumptions import WEEK, Assumptions

BUSY: Final = 0.8
"""A server above this share of its CPU is hot; all together above it, the job is short of CPU."""
_TRIES: Final = 100
_FAULTS: Final = 40
_PER_FAMILY: Final = 12


class JobClass(StrEnum):
    """What holds a job back with the requests of its user."""

    PLAIN = "plain"
    HOT = "hot servers"
    SHORT = "short of server CPU"


@dataclass(frozen=True, kw_only=True)
class WeekJob:
    """One job. `faults` are (exposure in pod-days of the last one to this one, which pod of them,
    0 to 1); `broken_at` is the step at which its program fails, None: never.
    """

    index: int
    arrival: float
    model: PsJobModel
    signature: Signature
    asked: PsConfig
    asked_bytes: Mapping[Role, int]
    kind: JobClass
    faults: tuple[tuple[float, float], ...]
    broken_at: float | None

    @property
    def name(self) -> str:
        """As a resource of Kubernetes is called."""
        return f"job-{self.index}"

    @property
    def pods(self) -> int:
        """Pods that the user asked for."""
        return len(self.asked.workers) + len(self.asked.servers)

    @property
    def steps(self) -> float:
        """Steps after which it is done."""
        return float(self.model.steps)


def server_bytes(model: PsJobModel, servers: int, assumed: Assumptions) -> list[float]:
    """What each of `servers` servers needs."""
    base = assumed.server_base_gib * GIB
    return [base + model.parameter_bytes * share for share in model.shares(servers)]


def class_of(asked: PsConfig, reached: PsSpeed) -> JobClass:
    """What a run with these requests shows."""
    if math.fsum(reached.server_cores) > BUSY * math.fsum(asked.servers):
        return JobClass.SHORT
    pairs = zip(reached.server_cores, asked.servers, strict=True)
    return JobClass.HOT if any(used > BUSY * cores for used, cores in pairs) else JobClass.PLAIN


def generate(count: int, seed: int, assumed: Assumptions) -> list[WeekJob]:
    """The jobs of one week, in the order in which they come; job k is of the same family whatever
    is assumed, as far as the assumption lets it.
    """
    families = _families(count, seed, assumed)
    arrivals = np.sort(np.random.default_rng([seed, 11]).uniform(0.0, WEEK, count))
    return [
        _job(
            np.random.default_rng([seed, 12, index]),
            index,
            float(arrivals[index]),
            families,
            assumed,
        )
        for index in range(count)
    ]


def remembered(count: int, seed: int, assumed: Assumptions) -> list[PastJob]:
    """Jobs of the same families that finished in the week before, as the Brain remembers them:
    what they used while nothing hindered them.
    """
    families = _families(count, seed, assumed)
    found = []
    for index in range(round(count * assumed.past_jobs)):
        rng = np.random.default_rng([seed, 13, index])
        job = _job(rng, index, float(rng.uniform(-WEEK, 0.0)), families, assumed)
        free = _unhindered(job.model, job.asked, assumed)
        memory = server_bytes(job.model, len(job.asked.servers), assumed)
        found.append(
            past_job(f"past-{index}", job, free, len(job.asked.workers), memory, job.arrival)
        )
    return sorted(found, key=lambda one: one.finished_seconds)


def past_job(
    uid: str, job: WeekJob, reached: PsSpeed, workers: int, memory: list[float], finished: float
) -> PastJob:
    """A finished job as the Brain sums it up; `memory` of each server, in bytes."""
    return PastJob(
        uid=uid,
        signature=job.signature,
        strategy=Strategy.PARAMETER_SERVER,
        finished_seconds=finished,
        succeeded=True,
        steps_per_second=reached.steps_per_second,
        roles={
            Role.WORKER: RoleUsage(
                replicas=workers,
                milli_cpu=1000 * math.fsum(reached.worker_cores),
                hottest_milli_cpu=1000 * max(reached.worker_cores),
                peak_memory_bytes=round(job.model.worker_bytes),
                total_memory_bytes=round(workers * job.model.worker_bytes),
            ),
            Role.PS: RoleUsage(
                replicas=len(memory),
                milli_cpu=1000 * math.fsum(reached.server_cores),
                hottest_milli_cpu=1000 * max(reached.server_cores),
                peak_memory_bytes=round(max(memory)),
                total_memory_bytes=round(math.fsum(memory)),
            ),
        },
    )


@dataclass(frozen=True, kw_only=True)
class _Family:
    model: PsJobModel
    signature: Signature
    workers: float
    servers: float
    spread: float


@dataclass(frozen=True)
class _Families:
    members: list[_Family]
    chances: np.ndarray


def _families(count: int, seed: int, assumed: Assumptions) -> _Families:
    rng = np.random.default_rng([seed, 14])
    number = max(1, count // _PER_FAMILY)
    members = []
    for case in random_cases(number, seed):
        model, dataset, user = rng.integers(0, [40, 60, 50])
        parameters = _about_mean(rng, assumed.mean_parameters, 1.0)
        members.append(
            _Family(
                model=replace(case.model, parameter_bytes=parameters * assumed.parameter_bytes),
                signature=Signature(
                    model=f"model-{model}", dataset=f"table-{dataset}", user=f"user-{user}"
                ),
                workers=_log_uniform(rng, 2, 60),
                servers=_log_uniform(rng, 1, 12),
                spread=float(rng.uniform(0.02, 0.15)),
            )
        )
    popularity = rng.pareto(1.2, number) + 0.3
    return _Families(members, popularity / popularity.sum())


def _job(
    rng: np.random.Generator, index: int, arrival: float, families: _Families, assumed: Assumptions
) -> WeekJob:
    wanted = rng.random()
    kind = JobClass.PLAIN
    if wanted < assumed.hot_share + assumed.short_share:
        kind = JobClass.HOT if wanted < assumed.hot_share else JobClass.SHORT
    steps = _about_mean(rng, assumed.mean_steps, assumed.steps_sigma)
    faults = tuple((float(rng.exponential()), float(rng.random())) for _ in range(_FAULTS))
    broken, at = rng.random() < assumed.broken_share, rng.random()
    for _ in range(_TRIES):
        # Popular families have most jobs; one that cannot be of the class is left for another.
        family = families.members[int(rng.choice(len(families.members), p=families.chances))]
        model = replace(_varied(rng, family, kind), steps=max(1000, round(steps)))
        asked = _asked(rng, family, model, kind, assumed)
        found = class_of(asked, speed(model, asked))
        if found is kind:
            break
    return WeekJob(
        index=index,
        arrival=arrival,
        model=model,
        signature=family.signature,
        asked=asked,
        asked_bytes=_asked_bytes(rng, model, asked, assumed),
        kind=found,
        faults=faults,
        broken_at=at * model.steps if broken else None,
    )


def _varied(rng: np.random.Generator, family: _Family, kind: JobClass) -> PsJobModel:
    model, spread = family.model, family.spread
    tensors = model.tensors
    if kind is JobClass.HOT:  # one table takes most of the updates
        tensors = (*tensors, math.fsum(tensors) * float(rng.uniform(0.5, 2.0)))
    return replace(
        model,
        compute_core_seconds=model.compute_core_seconds * float(rng.lognormal(0.0, spread)),
        update_core_seconds=model.update_core_seconds * float(rng.lognormal(0.0, spread)),
        worker_bytes=model.worker_bytes * float(rng.lognormal(0.0, spread)),
        parameter_bytes=model.parameter_bytes * float(rng.lognormal(0.0, spread)),
        tensors=tensors,
    )


def _unhindered(model: PsJobModel, config: PsConfig, assumed: Assumptions) -> PsSpeed:
    largest = assumed.pod_cores
    free = PsConfig(
        workers=(largest,) * len(config.workers), servers=(largest,) * len(config.servers)
    )
    return speed(model, free)


def _asked(
    rng: np.random.Generator,
    family: _Family,
    model: PsJobModel,
    kind: JobClass,
    assumed: Assumptions,
) -> PsConfig:
    workers = max(1, round(family.workers * float(rng.lognormal(0.0, family.spread))))
    # One large table among few servers would not stand out from what is asked on top.
    servers = max(4 if kind is JobClass.HOT else 1, round(family.servers))
    config = PsConfig(workers=(1.0,) * workers, servers=(1.0,) * servers)
    used = _unhindered(model, config, assumed)
    worker = math.fsum(used.worker_cores) / workers * _over(rng, assumed)
    server = math.fsum(used.server_cores) / servers * _over(rng, assumed)
    if kind is JobClass.SHORT:
        server = math.fsum(used.server_cores) / servers * float(rng.uniform(0.5, 0.98))
    worker_cores = min(assumed.pod_cores, max(1.0, math.ceil(worker)))
    server_cores = min(assumed.pod_cores, max(1.0, math.ceil(server)))
    # Nobody gets more than the quota of a job: servers first, at least one worker.
    servers = max(1, min(servers, int((assumed.job_cores - worker_cores) // server_cores)))
    left = assumed.job_cores - servers * server_cores
    workers = max(1, min(workers, int(left // worker_cores)))
    return PsConfig(workers=(worker_cores,) * workers, servers=(server_cores,) * servers)


def _asked_bytes(
    rng: np.random.Generator, model: PsJobModel, asked: PsConfig, assumed: Assumptions
) -> dict[Role, int]:
    needs = {
        Role.WORKER: model.worker_bytes,
        Role.PS: max(server_bytes(model, len(asked.servers), assumed)),
    }
    given = {}
    for role, need in needs.items():
        short = rng.random() < assumed.short_memory
        factor, less = _over(rng, assumed), float(rng.uniform(0.5, 0.98))
        given[role] = min(round(need * (less if short else factor)), round(assumed.node_gib * GIB))
    return given


def _over(rng: np.random.Generator, assumed: Assumptions) -> float:
    return float(assumed.least_over + rng.gamma(2.5, assumed.mean_over / 2.5))


def _about_mean(rng: np.random.Generator, mean: float, sigma: float) -> float:
    return float(rng.lognormal(math.log(mean) - sigma * sigma / 2, sigma))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))
