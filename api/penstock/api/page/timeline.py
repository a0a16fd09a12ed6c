"""The timeline of one job as shapes: speed over time, workers below it, plans as marks. Pure.

Below these, where any is measured, the utilisation of its GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

from penstock.api.page.axis import Scale, Tick, figure, time_label, time_ticks, value_ticks

WIDTH: Final = 960
HEIGHT: Final = 300
_LEFT: Final = 56
_RIGHT: Final = 924
"""Room beside it for half of the last label."""
_SPEED_TOP: Final = 34
_SPEED_BOTTOM: Final = 190
_WORKERS_TOP: Final = 214
_WORKERS_BOTTOM: Final = 264
_GPUS_TOP: Final = 282
_GPUS_BOTTOM: Final = 332
_GPUS_ROOM: Final = 68
"""By which the chart is higher with the GPUs."""
_MOST_POINTS: Final = 600
_GAP_INTERVALS: Final = 6.0
"""A silence of so many median intervals breaks the line: nothing was measured there."""


@dataclass(frozen=True, slots=True)
class Point:
    """One sample."""

    time_seconds: float
    steps_per_second: float
    workers: int
    gpu_utilization: float | None = None


@dataclass(frozen=True, slots=True)
class PlanMark:
    """One plan to be marked."""

    number: int
    time_seconds: float
    label: str
    by_person: bool
    held: bool = False
    by_scheduler: bool = False
    """It is a decision of the scheduler, which has no number."""
    anchor: str = ""
    """Of its line in the table."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A plan's place in the chart."""

    plan: PlanMark
    x: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that the template draws."""

    speed: str
    workers: str
    marks: Sequence[Mark]
    speed_ticks: Sequence[Tick]
    worker_ticks: Sequence[Tick]
    time_ticks: Sequence[Tick]
    summary: str
    gpus: str = ""
    gpu_ticks: Sequence[Tick] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = _RIGHT
    speed_top: int = _SPEED_TOP
    speed_bottom: int = _SPEED_BOTTOM
    workers_top: int = _WORKERS_TOP
    workers_bottom: int = _WORKERS_BOTTOM


def timeline(points: Sequence[Point], plans: Sequence[PlanMark]) -> Timeline | None:
    """The chart; None where there is nothing to draw."""
    times = [point.time_seconds for point in points] + [plan.time_seconds for plan in plans]
    if not times:
        return None
    low, high = min(times), max(times)
    if high - low < 1:
        high = low + 1
    points = thinned(sorted(points, key=lambda point: point.time_seconds), _MOST_POINTS)
    across = Scale(low, high, _LEFT, _RIGHT)
    speeds = value_ticks(max((point.steps_per_second for point in points), default=0))
    up = Scale(0, speeds[-1], _SPEED_BOTTOM, _SPEED_TOP)
    most = max((point.workers for point in points), default=0)
    crowd = Scale(0, max(most, 1), _WORKERS_BOTTOM, _WORKERS_TOP)
    share = Scale(0, 1, _GPUS_BOTTOM, _GPUS_TOP)
    busy = [
        (point.time_seconds, one) for point in points if (one := point.gpu_utilization) is not None
    ]
    return Timeline(
        speed=_line([(each.time_seconds, each.steps_per_second) for each in points], across, up),
        workers=_steps(points, across, crowd),
        marks=[Mark(plan, across.at(plan.time_seconds)) for plan in plans],
        speed_ticks=[Tick(up.at(value), figure(value)) for value in speeds],
        worker_ticks=[Tick(crowd.at(value), str(value)) for value in sorted({0, max(most, 1)})],
        time_ticks=[
            Tick(across.at(moment), time_label(moment, high - low))
            for moment in time_ticks(low, high)
        ],
        summary=_summary(points, plans, low, high),
        gpus=_line(busy, across, share),
        gpu_ticks=[Tick(share.at(value), f"{value:.0%}") for value in (0, 1)] if busy else (),
        height=HEIGHT + (_GPUS_ROOM if busy else 0),
    )


def thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most `most` points: of each bucket the middle one, the first and last always."""
    if len(points) <= most:
        return points
    stride = (len(points) - 1) / (most - 1)
    return [points[round(index * stride)] for index in range(most)]


def _line(values: Sequence[tuple[float, float]], across: Scale, up: Scale) -> str:
    gap = _gap([time for time, _ in values])
    parts = []
    before: float | None = None
    for time, value in values:
        new = before is None or time - before > gap
        parts.append(f"{'M' if new else 'L'}{across.at(time)} {up.at(value)}")
        before = time
    return " ".join(parts)


def _steps(points: Sequence[Point], across: Scale, up: Scale) -> str:
    gap = _gap([point.time_seconds for point in points])
    parts = []
    before: Point | None = None
    for point in points:
        x, y = across.at(point.time_seconds), up.at(point.workers)
        if before is None or point.time_seconds - before.time_seconds > gap:
            parts.append(f"M{x} {y}")
        elif point.workers == before.workers:
            parts.append(f"H{x}")
        else:
            parts.append(f"H{x} V{y}")
        before = point
    return " ".join(parts)


def _gap(times: Sequence[float]) -> float:
    pauses = sorted(after - before for before, after in pairwise(times))
    return max(60.0, _GAP_INTERVALS * pauses[len(pauses) // 2]) if pauses else 60.0


def _summary(points: Sequence[Point], plans: Sequence[PlanMark], low: float, high: float) -> str:
    span = f"{time_label(low, high - low)} to {time_label(high, high - low)} UTC"
    if not points:
        return f"No samples; {len(plans)} plans from {span}."
    first, last = points[0], points[-1]
    busy = [one for point in points if (one := point.gpu_utilization) is not None]
    gpus = f" with its GPUs {fmean(busy):.0%} busy" if busy else ""
    people = sum(1 for plan in plans if plan.by_person)
    scheduled = sum(1 for plan in plans if plan.by_scheduler)
    counted = len(plans) - scheduled
    scheduler = f", {scheduled} decisions of the scheduler" if scheduled else ""
    return (
        f"{span}: from {figure(first.steps_per_second)} steps per second on {first.workers} "
        f"worker{'s' * (first.workers != 1)} to {figure(last.steps_per_second)} on {last.workers}"
        f"{gpus}; "
        f"{counted} plan{'s' * (counted != 1)}, {people} by people{scheduler}."
    )
