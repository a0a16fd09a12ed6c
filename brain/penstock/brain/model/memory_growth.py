"""When a pod will have used up its memory, from how its use has grown; pure.

A line is fitted to the newest peaks of one pod by least squares. Its slope counts only where the
growth is no accident: the lower end of its interval is above 0; it makes up a good part of the
limit; the newer half grows nearly as fast as the whole, since a cache that fills up slows down
before it is full; and the use is higher than it ever was under this limit, since what goes up and
down has been there before. A fall of more than a tenth from one sample to the next, or another
limit, is the start of another process or pod: the line leaves out what was before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Role
from penstock.brain.planning import Sample

MOST_POINTS: Final = 80
"""Samples that a line is fitted to: twenty minutes of them at the usual interval."""
_SIGMAS: Final = 3.0
"""Half width of the interval of a slope, in standard errors."""
_FALL: Final = 0.1
_LEAST_GROWN: Final = 0.15
"""Share of the limit that must have been added over the samples."""
_STEADY: Final = 0.85
"""Least slope of the newer half, of the whole one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth:
    """How one pod's memory grows: `limit_bytes` is reached `seconds_left` after its newest sample.

    `least_seconds` and `most_seconds` are that by the ends of the slope's interval.
    """

    used_bytes: int
    limit_bytes: int
    bytes_per_second: float
    seconds_left: float
    least_seconds: float
    most_seconds: float


def memory_growth(
    samples: Sequence[Sample], role: Role, rank: int, enough_samples: int
) -> MemoryGrowth | None:
    """The growth of `rank`, from samples oldest first; None where there is none to speak of."""
    points: list[tuple[float, int]] = []
    limit = None
    for sample in reversed(samples[-MOST_POINTS:]):
        row = sample.ranks(role).get(rank)
        if row is None or not row.memory_limit_bytes or not row.memory_bytes:
            break
        if limit is not None and row.memory_limit_bytes != limit:
            break
        if points and row.memory_bytes > points[-1][1] / (1 - _FALL):
            break
        limit = row.memory_limit_bytes
        points.append((sample.time_seconds, row.memory_bytes))
    if limit is None or len(points) < max(4, enough_samples):
        return None
    if all(used == points[0][1] for _, used in points):
        return None  # as of most pods
    points.reverse()
    slope, error = _slope(points)
    newer, _ = _slope(points[len(points) // 2 :])
    least = slope - _SIGMAS * error
    grown = slope * (points[-1][0] - points[0][0])
    if least <= 0 or newer < _STEADY * slope or grown < _LEAST_GROWN * limit:
        return None
    used = points[-1][1]
    # One sample may be below by chance: the highest must be among the newest few.
    if max(peak for _, peak in points[-4:]) < max(
        _earlier_peaks(samples, role, rank, limit), default=0
    ):
        return None
    left = max(0, limit - used)
    return MemoryGrowth(
        used_bytes=used,
        limit_bytes=limit,
        bytes_per_second=slope,
        seconds_left=left / slope,
        least_seconds=left / (slope + _SIGMAS * error),
        most_seconds=left / least,
    )


def _earlier_peaks(samples: Sequence[Sample], role: Role, rank: int, limit: int) -> Iterator[int]:
    for sample in samples:
        row = sample.ranks(role).get(rank)
        if row is not None and row.memory_limit_bytes == limit:
            yield row.memory_bytes


def _slope(points: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Slope in bytes per second and its standard error; (0, 0) where all times are one."""
    count = len(points)
    middle = sum(at for at, _ in points) / count
    mean = sum(used for _, used in points) / count
    spread = sum((at - middle) ** 2 for at, _ in points)
    if spread <= 0:
        return 0.0, 0.0
    slope = sum((at - middle) * (used - mean) for at, used in points) / spread
    rest = sum((used - mean - slope * (at - middle)) ** 2 for at, used in points)
    return slope, math.sqrt(rest / max(1, count - 2) / spread)
