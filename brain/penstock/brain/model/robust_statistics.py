"""Statistics that a few wild values do not move.

Samples of a training job come from a machine that others share: some are far off. Every average
that decides something is taken here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from penstock.base.robust_spread import robust_sigma as robust_sigma


def tightest_half_mean(values: Sequence[float]) -> float:
    """Mean of the half of `values` nearest to their median (the middle value counts).

    Up to half of the values may be arbitrary without moving it beyond the rest.

    Raises:
        ValueError: The sequence is empty.
    """
    if not values:
        raise ValueError("tightest_half_mean needs at least one value")
    centre = median(values)
    nearest = sorted(values, key=lambda value: (abs(value - centre), value))
    half = nearest[: len(values) // 2 + 1]
    return math.fsum(half) / len(half)


def robust_z(values: Sequence[float], floor: float = 0.0) -> list[float]:
    """How many robust standard deviations each value lies from the median.

    `floor` is the least standard deviation to divide by, so that values that agree to a hair do
    not make an outlier of the next hair; with a floor and a spread of 0 every score is 0.
    """
    if not values:
        return []
    centre = median(values)
    sigma = max(robust_sigma(values), floor)
    if sigma == 0:
        return [
            0.0 if value == centre else math.copysign(math.inf, value - centre) for value in values
        ]
    return [(value - centre) / sigma for value in values]
