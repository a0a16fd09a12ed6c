"""Figures 1, 3 and 6 of the DLRover paper as sweeps of the same models.

The paper prints them as pictures without numbers, so there is nothing to put beside ours but what
its text says of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from penstock.sim.ps.jobs.model import PsConfig, speed
from penstock.sim.ps.jobs.paper import PAPER_JOBS
from penstock.sim.report.plot import Curve, Panel
from penstock.sim.week.run import Regime, WeekRun, run_week
from penstock.sim.week.world.assumptions import Assumptions

FIGURES: Final = (1, 3, 6)
CORES: Final = 16.0
"""Of the pods that Figure 1 keeps as they are."""
_COUNTS: Final = (1, 2, 4, 6, 8, 12, 16, 24)
_SIZES: Final = (1, 2, 4, 6, 8, 12, 16, 24, 32)
_BANDS: Final = ((0, 50), (50, 100), (100, 150), (150, 201))


@dataclass(frozen=True, slots=True)
class Throughput:
    """A point of Figure 1: what was swept, its value, and steps per second."""

    model: str
    swept: str
    value: float
    steps_per_second: float


@dataclass(frozen=True, slots=True)
class Pending:
    """A band of Figure 3: jobs by the cores that they ask for, and how long they waited."""

    least_cores: int
    most_cores: int
    jobs: int
    median_seconds: float
    mean_seconds: float


@dataclass(frozen=True, slots=True)
class ServerUse:
    """A bar of Figure 6: the part of its CPU that one server uses in Table 2's configuration."""

    model: str
    server: int
    utilisation: float


def figure_1() -> list[Throughput]:
    """Throughput against resources: one server of 16 cores with more or larger workers; one worker
    of 16 cores with more or larger servers.
    """
    points = []
    for name, job in PAPER_JOBS.items():
        worker = job.tuned.workers[0]
        sweeps: list[tuple[str, float, PsConfig]] = [
            *(("workers", n, PsConfig(workers=(worker,) * n, servers=(CORES,))) for n in _COUNTS),
            *(("worker cores", c, PsConfig(workers=(float(c),), servers=(CORES,))) for c in _SIZES),
            *(("servers", n, PsConfig(workers=(CORES,), servers=(CORES,) * n)) for n in _COUNTS),
            *(("server cores", c, PsConfig(workers=(CORES,), servers=(float(c),))) for c in _SIZES),
        ]
        points += [
            Throughput(name, swept, value, speed(job.case.model, config).steps_per_second)
            for swept, value, config in sweeps
        ]
    return points


def figure_3(
    jobs: int, seeds: Sequence[int], assumed: Assumptions, traces: Path | None
) -> tuple[list[Pending], float]:
    """How long jobs wait for their pods, by the CPU that their users ask for, in static weeks; and
    the rank correlation of the two.
    """
    waits = [
        wait
        for seed in seeds
        for wait in _waits(run_week(Regime.STATIC, jobs, seed, assumed, traces), assumed)
    ]
    bands = []
    for low, high in _BANDS:
        own = [seconds for cores, seconds in waits if low <= cores < high]
        if own:
            bands.append(Pending(low, high, len(own), median(own), fmean(own)))
    return bands, _rank_correlation(waits)


def _waits(run: WeekRun, assumed: Assumptions) -> list[tuple[float, float]]:
    return [
        (one.cores, max(0.0, one.started - one.arrival - assumed.ready))
        for one in run.outcomes
        if one.started is not None
    ]


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's, with the mean rank for equal values; 0 where one side is constant."""
    first, second = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    middle = (len(pairs) + 1) / 2
    together = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    spread = [sum((a - middle) ** 2 for a in ranks) for ranks in (first, second)]
    return together / (spread[0] * spread[1]) ** 0.5 if min(spread) > 0 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            ranks[index] = (start + 1 + end) / 2
        start = end
    return ranks


def figure_6() -> list[ServerUse]:
    """The CPU of each server in the paper's well-tuned configurations."""
    found = []
    for name, job in PAPER_JOBS.items():
        reached = speed(job.case.model, job.tuned)
        found += [
            ServerUse(name, rank, used / cores)
            for rank, (used, cores) in enumerate(
                zip(reached.server_cores, job.tuned.servers, strict=True)
            )
        ]
    return found


def panels_1(points: Sequence[Throughput]) -> list[Panel]:
    """Figure 1 as pictures."""
    panels = []
    for swept in dict.fromkeys(point.swept for point in points):
        curves = []
        for model in dict.fromkeys(point.model for point in points):
            own = [point for point in points if (point.model, point.swept) == (model, swept)]
            curves.append(
                Curve(model, [one.value for one in own], [one.steps_per_second for one in own])
            )
        panels.append(Panel(f"Figure 1: {swept}", swept, "steps per second", curves))
    return panels


def panels_3(bands: Sequence[Pending]) -> list[Panel]:
    """Figure 3 as a picture."""
    cores = [(one.least_cores + one.most_cores) / 2 for one in bands]
    curves = [
        Curve("median", cores, [one.median_seconds for one in bands]),
        Curve("mean", cores, [one.mean_seconds for one in bands]),
    ]
    return [Panel("Figure 3: pending time", "cores asked for", "seconds", curves)]


def panels_6(bars: Sequence[ServerUse]) -> list[Panel]:
    """Figure 6 as a picture."""
    curves = []
    for model in dict.fromkeys(one.model for one in bars):
        own = [one for one in bars if one.model == model]
        curves.append(Curve(model, [one.server for one in own], [one.utilisation for one in own]))
    return [Panel("Figure 6: CPU of each server", "server", "share of its CPU in use", curves)]
