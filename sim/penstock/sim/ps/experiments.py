"""The experiments: the paper's two models under every planner, and random models in bulk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing import get_context
from statistics import median
from typing import Any

from penstock.base.enums import Role, Stage
from penstock.sim.ps.jobs.model import PsConfig, linear_speed, speed
from penstock.sim.ps.jobs.oracle import exhaustive, well_tuned
from penstock.sim.ps.jobs.paper import PAPER_JOBS, SPARE_WORKERS, PaperJob
from penstock.sim.ps.jobs.random_models import PsCase, random_cases
from penstock.sim.ps.planners import (
    DLROVER,
    FITTED,
    BrainPlanner,
    Heuristic,
    Optimus,
    Static,
    algorithms,
    dlrover_algorithms,
    policy_of,
)
from penstock.sim.ps.run import Planned, Planner, RunOutcome, Straggler, simulate


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """One planner on one random job; `ratio` is to the exhaustive oracle's speed."""

    ratio: float
    to_static: float
    server_changes: int
    adjustment_seconds: float


@dataclass(frozen=True, slots=True)
class ExperimentSummary:
    """One planner over all random jobs."""

    median_ratio: float
    worst_ratio: float
    worst_to_static: float
    max_ps_changes: int
    median_adjustment_seconds: float


def paper_runs(name: str, seed: int) -> dict[str, RunOutcome]:
    """Every planner on a model of the paper.

    DLRover's rule starts on one server and may exceed the quota, as it did there.
    """
    job = PAPER_JOBS[name]
    case = job.case
    worker, server = job.tuned.workers[0], job.tuned.servers[0]
    within, as_published = algorithms(), dlrover_algorithms(as_published=True)
    planners: dict[str, Planner] = {
        "static": Static(job.tuned),
        "optimus": Optimus(worker, server, job.optimus[1], job.optimus[0]),
        "heuristic": Heuristic(worker, server, job.heuristic_servers, job.heuristic),
        "optimize_ps": BrainPlanner(as_published, DLROVER, checked=False),
        "fitted_ps": BrainPlanner(within, FITTED),
    }
    spare = {"optimize_ps": SPARE_WORKERS}
    return {
        label: simulate(case, planner, seed, spare=spare.get(label, 0))
        for label, planner in planners.items()
    }


def straggler_runs(name: str, role: Role, seed: int) -> dict[str, RunOutcome]:
    """Start from the well-tuned configuration with one pod at 25 % of its CPU (section 6.2)."""
    job = PAPER_JOBS[name]
    straggler = Straggler(role=role, rank=1)
    static = simulate(job.case, Static(job.tuned), seed, straggler=straggler)
    if role is Role.WORKER:
        static = replace(static, jct_seconds=_even_shards(job, straggler))
    planners = {
        "optimize_ps": BrainPlanner(dlrover_algorithms(), DLROVER, start=job.tuned),
        "fitted_ps": BrainPlanner(algorithms(), FITTED, start=job.tuned),
    }
    runs = {
        label: simulate(job.case, planner, seed, straggler=straggler)
        for label, planner in planners.items()
    }
    return {"static": static, **runs}


def _even_shards(job: PaperJob, straggler: Straggler) -> float:
    """Completion time where every worker has an equal part of the data, the slow one as well.

    As workers finish, the servers have less to do and the slow one's speed is its own.
    """
    config = replace(job.tuned, slow_workers={straggler.rank: straggler.share})
    part = job.case.model.steps / len(config.workers)
    together = speed(job.case.model, config)
    fast = max(together.worker_steps_per_second)
    slow = together.worker_steps_per_second[straggler.rank]
    meanwhile = part / fast
    left = part - slow * meanwhile
    alone = speed(
        job.case.model,
        PsConfig(
            workers=(config.workers[straggler.rank],),
            servers=config.servers,
            slow_workers={0: straggler.share},
        ),
    )
    start = 120.0
    return start + meanwhile + max(left, 0.0) / alone.steps_per_second


def random_rows(case: PsCase, index: int, also: str | None = None) -> dict[str, ExperimentRow]:
    """Every planner on one random job, and one more algorithm if `also` names it."""
    best, tuned = exhaustive(case), well_tuned(case)
    registry = algorithms()
    worker, server = tuned.config.workers[0], min(16.0, float(case.pod_cores))
    planners: dict[str, Planner] = {
        "static": Static(tuned.config),
        "optimus": Optimus(worker, server),
        "heuristic": Heuristic(worker, server, max(1, round(len(tuned.config.servers) / 2))),
        "optimize_ps": BrainPlanner(dlrover_algorithms(), DLROVER),
        "fitted_ps": BrainPlanner(registry, FITTED),
    }
    if also is not None:
        planners.setdefault(also, BrainPlanner(registry, policy_of(also)))
    rows = {}
    for name, planner in planners.items():
        outcome = simulate(case, planner, index)
        rows[name] = ExperimentRow(
            ratio=outcome.final_steps_per_second / best.steps_per_second,
            to_static=outcome.final_steps_per_second / tuned.steps_per_second,
            server_changes=outcome.server_changes,
            adjustment_seconds=outcome.adjustment_seconds,
        )
    return rows


def random_summary(
    count: int, seed: int, processes: int | None = None, also: str | None = None
) -> dict[str, ExperimentSummary]:
    """Every planner over `count` random jobs; the same whatever the number of processes.

    Raises:
        SimulationError: `also` is no algorithm that plans a running job.
    """
    if also is not None:
        policy_of(also)
    cases = random_cases(count, seed)
    processes = max(1, min(processes or os.cpu_count() or 1, count))
    if processes == 1:
        made = (random_rows(case, index, also) for index, case in enumerate(cases))
        rows = list(_counted(made, count))
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            mapped = pool.map(random_rows, cases, range(count), repeat(also), chunksize=4)
            rows = list(_counted(mapped, count))
    return {name: _summary([row[name] for row in rows]) for name in rows[0]}


def _counted(
    rows: Iterable[dict[str, ExperimentRow]], count: int
) -> Iterator[dict[str, ExperimentRow]]:
    """The rows, counted on standard error while a person waits for them."""
    watched = sys.stderr.isatty()
    for number, row in enumerate(rows, start=1):
        if watched:
            end = "\n" if number == count else ""
            sys.stderr.write(f"\r{number} of {count} jobs simulated{end}")
            sys.stderr.flush()
        yield row


def _summary(rows: Sequence[ExperimentRow]) -> ExperimentSummary:
    return ExperimentSummary(
        median_ratio=median(row.ratio for row in rows),
        worst_ratio=min(row.ratio for row in rows),
        worst_to_static=min(row.to_static for row in rows),
        max_ps_changes=max(row.server_changes for row in rows),
        median_adjustment_seconds=median(row.adjustment_seconds for row in rows),
    )


def as_json(outcome: RunOutcome, job: PaperJob) -> dict[str, Any]:
    """One run in the shape that the documentation gives."""
    return {
        "plans": [_plan(planned) for planned in outcome.plans],
        "throughput": [
            {"time_seconds": at, "steps_per_second": value} for at, value in outcome.speeds
        ],
        "final_steps_per_second": outcome.final_steps_per_second,
        "linear_steps_per_second": linear(outcome, job),
        "adjustment_seconds": outcome.adjustment_seconds,
        "jct_seconds": outcome.jct_seconds,
        "ps_changes": outcome.server_changes,
    }


def linear(outcome: RunOutcome, job: PaperJob) -> float:
    """The paper's ideal: the speed of one such worker alone, times the number of workers."""
    workers = outcome.config.workers
    return linear_speed(job.case.model, len(workers), workers[0], float(job.case.pod_cores))


def table_one(outcome: RunOutcome) -> tuple[int, float, int, float]:
    """Workers, their cores, servers and their cores after the last plan of stage Optimize."""
    planned = [p for p in outcome.plans if p.plan.stage is Stage.OPTIMIZE][-1]
    workers, servers = planned.config.workers, planned.config.servers
    return len(workers), workers[0], len(servers), servers[0]


def _plan(planned: Planned) -> dict[str, Any]:
    prediction = planned.plan.prediction
    return {
        "time_seconds": planned.time_seconds,
        "stage": str(planned.plan.stage),
        "algorithm": planned.plan.algorithm,
        "reason": str(planned.plan.reason),
        "message": planned.plan.message,
        "worker": _role(planned.config.workers),
        "ps": _role(planned.config.servers),
        "predicted_steps_per_second": prediction.steps_per_second if prediction else None,
        "error_steps_per_second": prediction.error_steps_per_second if prediction else None,
    }


def _role(cores: Sequence[float]) -> dict[str, Any]:
    """`cpu` is the most common size, in cores; `cpu_by_rank` where they are not all alike."""
    common = max(sorted(set(cores)), key=list(cores).count)
    row: dict[str, Any] = {"replicas": len(cores), "cpu": common}
    if len(set(cores)) > 1:
        row["cpu_by_rank"] = list(cores)
    return row
