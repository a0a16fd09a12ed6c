"""Random jobs with what a planner knows of their configurations, and what is true of them.

Half have parameter servers: those of ``penstock sim ps --random``, each measured in three
configurations with its noise and in the one that the Brain's model then finds fastest, from which
the model is fitted. The others are AllReduce jobs
with Amdahl's law, which the Brain's `scale_allreduce` has planned from one worker on until it was
at rest, so that the counts that it tried are known. Seven of ten of these have an accelerator for
each worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import numpy as np

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.algorithms import scale_allreduce
from penstock.brain.model.measurement import Measurement
from penstock.brain.model.ps_model import fit
from penstock.brain.model.ps_search import Bounds, Choice, best
from penstock.brain.model.spent import GIB
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    RankSample,
    RolePlan,
    RoleSpec,
    Sample,
)
from penstock.brain.pricing.configurations import of_servers, of_workers, servers_option
from penstock.brain.pricing.problem import Option, Prices, Resources, useful
from penstock.sim.ps.jobs.model import PsConfig, PsJobModel, speed
from penstock.sim.ps.jobs.random_models import PsCase, random_case

SAMPLES: Final = 5
"""Of each configuration of a job with parameter servers."""
SERVERS: Final = 3
"""Servers of such a job."""
MOST_WORKERS: Final = 32
"""Of an AllReduce job."""
REST_SECONDS: Final = 600.0
"""An AllReduce job that was not changed for so long is at rest."""
MOST_SECONDS: Final = 7200.0


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job: its options as a planner knows them, the one that it gets where it is planned alone,
    and the true throughput of each, by its name.
    """

    name: str
    options: tuple[Option, ...]
    alone: Option
    true: Mapping[str, float]


def random_job(index: int, seed: int, prices: Prices) -> KnownJob:
    """Job `index` of a seed: the same whatever the number of jobs."""
    rng = np.random.default_rng([seed, index, 3])
    if index % 2:
        return _all_reduce(index, rng, prices)
    return _with_servers(random_case(index // 2, seed), rng, prices)


def _with_servers(case: PsCase, rng: np.random.Generator, prices: Prices) -> KnownJob:
    model = case.model
    size = min(math.ceil(model.compute_cores + model.worker_idle_cores), case.pod_cores)
    runs = []
    for part in (0.15, 0.4, 0.8):
        server = max(2, min(round(part * case.cores / 4 / SERVERS), case.pod_cores))
        workers = max(1, int((part * case.cores - SERVERS * server) // size))
        runs.append(_measured(model, Choice(workers, size, (server,) * SERVERS, 0.0), rng))
    bounds = Bounds(case.cores, case.pod_cores, 1, case.most_workers)
    alone = best(fit(runs), bounds, [SERVERS])
    if alone is None:  # three servers and a worker fit into every quota that is drawn
        raise AssertionError(f"{model.name}: nothing fits into {case.cores} cores")
    runs.append(_measured(model, alone, rng))
    alone = replace(alone, steps_per_second=runs[-1].steps_per_second)
    worker_bytes, server_bytes = round(model.worker_bytes), round(model.parameter_bytes)
    found = of_servers(
        fit(runs),
        bounds,
        [SERVERS],
        prices,
        worker_memory_bytes=worker_bytes,
        server_memory_bytes=server_bytes,
        measured=[alone],
    )
    own = servers_option(alone, prices, worker_bytes, server_bytes)
    return KnownJob(
        name=model.name,
        options=tuple(option for _, option in found),
        alone=own,
        true={option.name: _truth(model, choice) for choice, option in (*found, (alone, own))},
    )


def _truth(model: PsJobModel, choice: Choice) -> float:
    return speed(model, _config(choice)).steps_per_second


def _config(choice: Choice) -> PsConfig:
    return PsConfig(
        workers=(float(choice.worker_cores),) * choice.workers,
        servers=tuple(float(cores) for cores in choice.server_cores),
    )


def _measured(model: PsJobModel, choice: Choice, rng: np.random.Generator) -> Measurement:
    truth = speed(model, _config(choice))
    error = model.noise / math.sqrt(SAMPLES)
    seen = truth.steps_per_second * float(rng.lognormal(0, error))
    return Measurement(
        workers=choice.workers,
        worker_cores=float(choice.worker_cores),
        server_cores=tuple(float(cores) for cores in choice.server_cores),
        steps_per_second=seen,
        error_steps_per_second=error * seen,
        worker_used_cores=truth.worker_cores[0],
        server_used_cores=truth.server_cores,
        worker_memory_bytes=round(model.worker_bytes),
        server_memory_bytes=round(model.parameter_bytes / SERVERS),
        samples=SAMPLES,
        first_seconds=0.0,
        last_seconds=60.0,
    )


def _all_reduce(index: int, rng: np.random.Generator, prices: Prices) -> KnownJob:
    serial = float(np.exp(rng.uniform(np.log(0.01), np.log(0.3))))
    one, noise = float(np.exp(rng.uniform(-1, 2))), float(rng.uniform(0.01, 0.04))
    accelerators = int(rng.random() < 0.7)
    cores = int(rng.choice([4, 8, 16]))
    worker = Resources(
        milli_cpu=cores * 1000, memory_bytes=4 * cores * GIB, accelerators=accelerators
    )

    def truth(workers: int) -> float:
        return one * workers / (1 + serial * (workers - 1))

    seen, last = _scaled(truth, worker, noise, rng)
    by_count = {
        count: of_workers({count: median(speeds)}, worker, prices)[0]
        for count, speeds in seen.items()
    }
    return KnownJob(
        name=f"all-reduce-{index}",
        options=useful(by_count.values()),
        alone=by_count[last],
        true={option.name: truth(count) for count, option in by_count.items()},
    )


def _scaled(
    truth: Callable[[int], float], worker: Resources, noise: float, rng: np.random.Generator
) -> tuple[dict[int, list[float]], int]:
    """What was seen at each count of workers until the Brain leaves the job alone, and the last."""
    job = JobDescription(
        uid="all-reduce",
        strategy=Strategy.ALL_REDUCE,
        roles={Role.WORKER: RoleSpec(maximum=MOST_WORKERS, milli_cpu=worker.milli_cpu)},
    )
    params = scale_allreduce.ScaleAllReduceParams()
    plans = [_applied(1, worker, Stage.CREATE, 0.0)]
    seen: dict[int, list[float]] = {}
    samples: list[Sample] = []
    workers, now, changed = 1, 0.0, 0.0
    while now < MOST_SECONDS and now - changed < REST_SECONDS:
        for _ in range(4):
            now += 15
            reached = truth(workers) * float(rng.lognormal(0, noise))
            seen.setdefault(workers, []).append(reached)
            samples.append(_sample(workers, worker, reached, now))
        history = History(now_seconds=now, samples=tuple(samples), plans=tuple(plans))
        plan = scale_allreduce.plan(history, job, Limits(), params)
        if plan is not None:
            workers = plan.roles[Role.WORKER].replicas or workers
            now += 120
            changed = now
            plans.append(_applied(workers, worker, plan.stage, now, plan.reason))
    return seen, workers


def _applied(
    workers: int, worker: Resources, stage: Stage, at: float, reason: str = ""
) -> AppliedPlan:
    role = RolePlan(replicas=workers, milli_cpu=worker.milli_cpu)
    return AppliedPlan(
        applied_seconds=at,
        roles={Role.WORKER: role},
        stage=stage,
        reason=reason,
        settled_seconds=at,
    )


def _sample(workers: int, worker: Resources, reached: float, at: float) -> Sample:
    row = RankSample(milli_cpu=0.9 * worker.milli_cpu, milli_cpu_limit=worker.milli_cpu)
    return Sample(
        time_seconds=at,
        step=round(at * 10 * reached),
        steps_per_second=10 * reached,
        world_size=workers,
        roles={Role.WORKER: dict.fromkeys(range(workers), row)},
    )
