"""Which workers are stragglers: much slower than the others at the same work, whatever their share.

Time per slot is compared, not time per step: a slow worker that was given fewer slots ends its
steps with the others and is still slow. A straggler is beyond both a ratio to the median (small
differences between equal machines do not matter) and a robust z-score (nor do differences that are
common in this job). Of two workers neither is the usual one: whoever shares a machine for a moment
is twice as slow as the other, so that it takes far more to call one of two a straggler.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median, median_low
from typing import Final

from penstock.base.robust_spread import MAD_TO_SIGMA

RATIO: Final = 1.5
RATIO_OF_TWO: Final = 3.0
Z_SCORE: Final = 3.5


def stragglers(slot_seconds: Mapping[int, float]) -> dict[int, float]:
    """How many times the usual time each straggler takes for a slot, by rank.

    Usual is the median; of two workers, the time of the other.
    """
    if len(slot_seconds) < 2:
        return {}
    usual = median_low(slot_seconds.values())
    if usual <= 0:
        return {}
    ratio = RATIO if len(slot_seconds) > 2 else RATIO_OF_TWO
    spread = MAD_TO_SIGMA * median(abs(each - usual) for each in slot_seconds.values())
    return {
        rank: seconds / usual
        for rank, seconds in slot_seconds.items()
        if seconds >= ratio * usual
        and (len(slot_seconds) < 4 or seconds - usual >= Z_SCORE * spread)
    }
