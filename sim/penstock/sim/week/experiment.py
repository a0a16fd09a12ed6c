"""The week over several seeds and assumptions, each run in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from penstock.sim.week.run import Regime, Standing, WeekRun, run_week
from penstock.sim.week.summary import Comparison, compare
from penstock.sim.week.world.assumptions import VARIANTS, Assumptions, varied


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make; `told`: its days are told on standard error."""

    regime: Regime
    jobs: int
    seed: int
    assumed: Assumptions
    traces: Path | None
    told: bool


def _run(task: Task) -> WeekRun:
    begin = time.monotonic()

    def passed(at: Standing) -> None:
        # One write per line, so that lines of several processes do not mix.
        sys.stderr.write(
            f"seed {task.seed}, {task.regime}: day {at.days}, {at.submitted} of {at.jobs} jobs"
            f" submitted, {at.ended} ended, {at.waiting_pods} pods wait"
            f" ({time.monotonic() - begin:.0f} s)\n"
        )
        sys.stderr.flush()

    return run_week(
        task.regime,
        task.jobs,
        task.seed,
        task.assumed,
        task.traces,
        passed if task.told else None,
    )


def weeks(
    jobs: int,
    seeds: Sequence[int],
    worlds: Sequence[Assumptions],
    traces: Path | None,
    processes: int | None,
    *,
    told: bool = False,
) -> Iterator[Comparison]:
    """Both runs of every seed in every world, each as soon as it and those before it are done.

    By world and within it by seed, and the same whatever the processes. With `told`, standard error
    has a line for each simulated day of a run.

    Raises:
        SimulationError: traces were asked for and are missing or broken.
    """
    tasks = [
        Task(regime, jobs, seed, assumed, traces, told)
        for assumed in worlds
        for seed in seeds
        for regime in (Regime.PENSTOCK, Regime.STATIC)
    ]
    processes = max(1, min(processes or os.cpu_count() or 1, len(tasks)))
    if processes == 1:
        yield from _compared(tasks, map(_run, tasks))
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield from _compared(tasks, pool.map(_run, tasks))


def _compared(tasks: Sequence[Task], runs: Iterator[WeekRun]) -> Iterator[Comparison]:
    for task in tasks[::2]:
        penstock, static = next(runs), next(runs)
        yield compare(static, penstock, task.assumed)


def sensitivity(base: Assumptions) -> list[tuple[str, Any, Assumptions]]:
    """Every world in which one assumption is another: its name, the value, the world."""
    return [
        (name, value, varied(base, name, value))
        for name, values in VARIANTS.items()
        for value in values
    ]
