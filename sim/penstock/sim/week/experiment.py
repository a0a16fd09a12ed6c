"""The week over several seeds and assumptions, each run in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from penstock.sim.week.run import Regime, WeekRun, run_week
from penstock.sim.week.summary import Comparison, compare
from penstock.sim.week.world.assumptions import VARIANTS, Assumptions, varied


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make."""

    regime: Regime
    jobs: int
    seed: int
    assumed: Assumptions
    traces: Path | None


def _run(task: Task) -> WeekRun:
    return run_week(task.regime, task.jobs, task.seed, task.assumed, task.traces)


def weeks(
    jobs: int,
    seeds: Sequence[int],
    worlds: Sequence[Assumptions],
    traces: Path | None,
    processes: int | None,
) -> list[list[Comparison]]:
    """Both runs of every seed in every world, by world; the same whatever the processes.

    Raises:
        SimulationError: traces were asked for and are missing or broken.
    """
    tasks = [
        Task(regime, jobs, seed, assumed, traces)
        for assumed in worlds
        for seed in seeds
        for regime in (Regime.PENSTOCK, Regime.STATIC)
    ]
    processes = max(1, min(processes or os.cpu_count() or 1, len(tasks)))
    if processes == 1:
        runs = [_counted(_run(task), number, len(tasks)) for number, task in enumerate(tasks, 1)]
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            runs = [
                _counted(run, number, len(tasks))
                for number, run in enumerate(pool.map(_run, tasks), 1)
            ]
    found: list[list[Comparison]] = []
    made = iter(runs)
    for assumed in worlds:
        found.append([])
        for _ in seeds:
            penstock, static = next(made), next(made)
            found[-1].append(compare(static, penstock, assumed))
    return found


def _counted(run: WeekRun, number: int, of: int) -> WeekRun:
    """The run, counted on standard error while a person waits."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{number} of {of} weeks simulated" + ("\n" if number == of else ""))
        sys.stderr.flush()
    return run


def sensitivity(base: Assumptions) -> list[tuple[str, Any, Assumptions]]:
    """Every world in which one assumption is another: its name, the value, the world."""
    return [
        (name, value, varied(base, name, value))
        for name, values in VARIANTS.items()
        for value in values
    ]
