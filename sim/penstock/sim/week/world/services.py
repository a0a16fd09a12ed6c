"""Online services on the same machines: they come first, and preempt training (DLRover, 6.4).

Either drawn from figures of two public traces, or, with the traces at hand, the arrivals and ends
of the CPU instances of Alibaba's recommendation services (cluster-trace-gpu-v2025), thinned out to
the share of the cluster that services are assumed to hold. One instance is one pod of the shape
most frequent among the latency-sensitive pods of openb.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.scheduler.request import Request
from penstock.sim.ps.jobs.model import GIB
from penstock.sim.traces.alibaba import DLRM_INSTANCES, DLRM_SOURCE
from penstock.sim.traces.table import read_rows
from penstock.sim.week.world.assumptions import DAY, WEEK, Assumptions

SHAPES: Final = (
    (11.3, 48.0, 0.46),
    (12.5, 56.0, 0.12),
    (18.7, 63.0, 0.08),
    (15.7, 57.0, 0.09),
    (16.0, 32.0, 0.08),
    (12.0, 24.0, 0.09),
    (8.0, 16.0, 0.08),
)
"""Cores, GiB and share: the frequent shapes among openb's latency-sensitive pods, rounded."""
_MEDIAN_LIFE: Final = 9684.0
_LIFE_SIGMA: Final = 3.0
"""Log-normal, from the quartiles (2,700 s, 9,684 s, 76,684 s) of the trace's instances."""
_LONGEST: Final = 31 * DAY
_HOURS: Final = (
    398, 450, 398, 400, 404, 383, 347, 305, 392, 297, 743, 886,
    569, 837, 993, 761, 491, 677, 672, 391, 393, 389, 338, 414,
)  # fmt: skip  # one row per half day
"""Instances that were created in each hour of the day, in the trace."""
_TRACE_START: Final = 7 * DAY


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """One instance: from when until when it wants to run, and what it requests."""

    start: float
    end: float
    request: Request


def draw(cores: float, seed: int, assumed: Assumptions, traces: Path | None) -> list[Service]:
    """The services of a cluster of so many cores, by start; those at 0 stand from the beginning."""
    rng = np.random.default_rng([seed, 21])
    mean = sum(shape[0] * shape[2] for shape in SHAPES)
    standing = round(cores * assumed.services_share / mean)
    spans = _drawn(standing, rng, assumed) if traces is None else _traced(standing, rng, traces)
    chances = [shape[2] for shape in SHAPES]
    kinds = rng.choice(len(SHAPES), size=len(spans), p=np.array(chances) / sum(chances))
    return sorted(
        (
            Service(start, end, Request(round(1000 * SHAPES[k][0]), round(SHAPES[k][1] * GIB)))
            for (start, end), k in zip(spans, kinds.tolist(), strict=True)
        ),
        key=lambda one: (one.start, one.end, one.request.milli_cpu),
    )


def _drawn(
    standing: int, rng: np.random.Generator, assumed: Assumptions
) -> list[tuple[float, float]]:
    """Arrivals since a month before, so that at 0 there are as many as there will be later."""
    days = round((_LONGEST + WEEK) / DAY)
    number = int(rng.poisson(standing * assumed.services_churn * days))
    day = rng.integers(0, days, size=number)
    hour = rng.choice(24, size=number, p=np.array(_HOURS) / sum(_HOURS))
    starts = day * DAY + hour * 3600.0 + rng.uniform(0, 3600.0, size=number) - _LONGEST
    lives = np.clip(rng.lognormal(np.log(_MEDIAN_LIFE), _LIFE_SIGMA, size=number), 3.0, _LONGEST)
    spans = [
        (max(0.0, float(start)), float(start + life))
        for start, life in zip(starts, lives, strict=True)
        if start + life > 0
    ]
    already = sum(start == 0.0 for start, _ in spans)
    return spans + [(0.0, float("inf"))] * max(0, standing - already)


def _traced(standing: int, rng: np.random.Generator, traces: Path) -> list[tuple[float, float]]:
    columns = ("role", "creation_time", "deletion_time")
    spans = []
    for row in read_rows(traces / DLRM_INSTANCES, columns, DLRM_SOURCE):
        if row.text("role") != "CN":
            continue
        start = row.number("creation_time", default=0.0) - _TRACE_START
        ended = row.text("deletion_time")
        end = row.number("deletion_time") - _TRACE_START if ended else float("inf")
        if start < WEEK and end > max(start, 0.0):
            spans.append((max(0.0, start), end))
    already = max(1, sum(start == 0.0 for start, _ in spans))
    whole, part = divmod(standing / already, 1.0)
    copies = int(whole) + (rng.random(len(spans)) < part)
    return [
        span for span, number in zip(spans, copies.tolist(), strict=True) for _ in range(number)
    ]
