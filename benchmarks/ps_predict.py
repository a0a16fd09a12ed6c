"""Does the simulator of parameter servers predict what the real runtime does?

    python -m benchmarks.ps_predict --json

``examples/criteo/wide_deep.py`` trains on real servers and workers whose CPU is limited to
milli-cores, as the embedded cluster limits it (`penstock_cluster.kubelet.shim.governor`); two
processes that take what is left of both cores see to it that a core-second always does the same.
The constants of `penstock.sim.ps.jobs.model` come from measurements apart: the CPU that the
`FITTED` configurations use is the work of a step, one worker with nothing limited beside 1, 2 and
3 servers gives the time that a step waits, and the speeds of the `FITTED` ones how updates
queue. All others are predicted from these, and compared.

Each configuration is measured in three passes, which are averaged: what a core gets done differs by
a tenth from one minute to the next, and how far the passes are apart is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, linear_regression, median
from typing import Any

from benchmarks.parameters.quotas import Measured, QuotaJob, running_quota_job
from penstock.sim.ps.jobs.model import PsConfig, PsJobModel, speed

PROGRAM = ("examples/criteo/wide_deep.py", "--samples=100000000")
SETTLE_SECONDS = 0.6
MEASURE_SECONDS = 2.2
PASSES = 3


@dataclass(frozen=True, order=True)
class Config:
    """So many servers and workers; milli-cores of each, None without a limit."""

    servers: int
    workers: int
    worker_milli: int | None
    server_milli: int | None

    def __str__(self) -> str:
        worker, server = self.worker_milli or "free", self.server_milli or "free"
        return f"{self.workers} x {worker}, {self.servers} x {server}"


ALONE = tuple(Config(servers, 1, None, None) for servers in (1, 2, 3))
FITTED = (
    Config(1, 2, 400, 300),
    Config(1, 3, 300, 100),
    Config(2, 2, 300, 100),
    Config(2, 3, 400, 80),
    Config(3, 2, 300, 80),
    Config(3, 3, 400, 60),
)
PREDICTED = (
    Config(1, 1, 300, 200),
    Config(1, 2, 500, 200),
    Config(1, 3, 300, 200),
    Config(1, 3, 400, 120),
    Config(2, 1, 500, 100),
    Config(2, 1, 200, 60),
    Config(2, 2, 450, 60),
    Config(2, 2, 200, 150),
    Config(2, 3, 250, 100),
    Config(2, 3, 400, 60),
    Config(3, 1, 400, 60),
    Config(3, 2, 500, 100),
    Config(3, 3, 300, 40),
    Config(3, 3, 400, 80),
)


async def measured(configs: Sequence[Config], folder: Path) -> dict[Config, list[Measured]]:
    """Measure all configurations; workers are added as they are needed."""
    found: dict[Config, list[Measured]] = defaultdict(list)
    for servers in sorted({config.servers for config in configs}):
        async with running_quota_job(folder / str(servers), servers) as job:
            here = [config for config in configs if config.servers == servers]
            for workers in sorted({config.workers for config in here}):
                await _with_workers(job, workers)
                same = [config for config in here if config.workers == workers]
                for _ in range(PASSES):
                    for config in same:
                        job.limit(config.worker_milli, config.server_milli)
                        await asyncio.sleep(SETTLE_SECONDS)
                        found[config].append(await job.measure(MEASURE_SECONDS))
    return found


async def _with_workers(job: QuotaJob, workers: int) -> None:
    job.limit(None, None)
    while job.workers < workers:
        await job.start_worker(*PROGRAM)
    await job.wait_for_steps(workers, time.time())


def calibrated(runs: dict[Config, list[Measured]]) -> PsJobModel:
    """The constants of a step; see the module's docstring."""
    work, asking = _line(FITTED, [_mean(runs[c], _worker_cores) for c in FITTED])
    update, answering = _line(FITTED, [_mean(runs[c], _server_cores) for c in FITTED])
    model = PsJobModel(
        name="wide-deep-here",
        io_seconds=0.0,
        server_io_seconds=0.0,
        compute_core_seconds=work,
        compute_cores=1.0,  # a program of one thread
        worker_idle_cores=0.0,
        update_core_seconds=update,
        update_cores=1.0,
        exposed=1.0,
        queueing=0.0,
        queueing_exponent=1.0,
        tensors=(1.0,) * 120,  # rows are spread by a hash: all servers have the same share
        asking_core_seconds=asking,
        answering_core_seconds=answering,
        bursts=True,
        parameter_bytes=0.0,
        worker_bytes=0.0,
        steps=0,
    )
    # What is left of a step alone is neither computing nor the answer of one server.
    rest = [
        _mean(runs[config], lambda run: 1.0 - run.worker_cores[0] - max(run.server_cores))
        for config in ALONE
    ]
    fixed, each = _line(ALONE, rest)
    model = replace(model, io_seconds=fixed, server_io_seconds=each)
    tried = [
        replace(model, queueing=queueing, queueing_exponent=exponent)
        for queueing in (0.0, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6)
        for exponent in (1.0, 2.0, 4.0, 8.0)
    ]
    return min(tried, key=lambda each: sum(error(each, c, runs[c]) ** 2 for c in FITTED))


def _mean(runs: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
    """Mean over the passes of a figure per step."""
    return fmean(figure(run) / run.steps_per_second for run in runs)


def _worker_cores(run: Measured) -> float:
    return sum(run.worker_cores)


def _server_cores(run: Measured) -> float:
    return sum(run.server_cores)


def _line(configs: Sequence[Config], values: Sequence[float]) -> tuple[float, float]:
    """What a quantity is without servers, and what each server adds: neither less than nothing."""
    servers = [config.servers for config in configs]
    slope, intercept = linear_regression(servers, values)
    if slope < 0:
        return fmean(values), 0.0
    if intercept < 0:
        return 0.0, fmean(values) / fmean(servers)
    return intercept, slope


def simulated(config: Config) -> PsConfig:
    """A configuration as the simulator has it; an unlimited process of one thread has one core."""
    worker = (config.worker_milli or 1000) / 1000
    server = (config.server_milli or 1000) / 1000
    return PsConfig(workers=(worker,) * config.workers, servers=(server,) * config.servers)


def error(model: PsJobModel, config: Config, runs: Sequence[Measured]) -> float:
    """Predicted speed over the measured one, less 1."""
    reached = fmean(run.steps_per_second for run in runs)
    return speed(model, simulated(config)).steps_per_second / reached - 1


def report(runs: dict[Config, list[Measured]]) -> dict[str, Any]:
    """The figures."""
    model = calibrated(runs)
    rows = [
        {
            "configuration": str(config),
            "fitted": config in FITTED or config in ALONE,
            "measured": round(fmean(run.steps_per_second for run in runs[config]), 1),
            "predicted": round(speed(model, simulated(config)).steps_per_second, 1),
            "error": round(error(model, config, runs[config]), 3),
            "passes_apart": round(_apart(runs[config]), 3),
        }
        for config in (*ALONE, *FITTED, *PREDICTED)
    ]
    errors = [abs(error(model, config, runs[config])) for config in PREDICTED]
    return {
        "predicted_configurations": len(PREDICTED),
        "median_error": round(median(errors), 3),
        "worst_error": round(max(errors), 3),
        "median_passes_apart": round(median(_apart(runs[config]) for config in PREDICTED), 3),
        "model": {
            "compute_core_ms": round(1000 * model.compute_core_seconds, 2),
            "update_core_ms": round(1000 * model.update_core_seconds, 2),
            "asking_core_ms": round(1000 * model.asking_core_seconds, 2),
            "answering_core_ms": round(1000 * model.answering_core_seconds, 2),
            "io_ms": round(1000 * model.io_seconds, 2),
            "server_io_ms": round(1000 * model.server_io_seconds, 2),
            "queueing": model.queueing,
            "queueing_exponent": model.queueing_exponent,
        },
        "configurations": rows,
    }


def _apart(runs: Sequence[Measured]) -> float:
    speeds = [run.steps_per_second for run in runs]
    return (max(speeds) - min(speeds)) / fmean(speeds)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = asyncio.run(measured((*ALONE, *FITTED, *PREDICTED), Path(folder)))
    figures = report(runs)
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
