"""How far values lie apart, whatever a few wild ones among them do."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

MAD_TO_SIGMA: Final = 1.4826
"""Of a normal distribution, the standard deviation over the median absolute deviation."""


def robust_sigma(values: Sequence[float]) -> float:
    """Standard deviation estimated by the median absolute deviation; 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    centre = median(values)
    return MAD_TO_SIGMA * median([abs(value - centre) for value in values])
