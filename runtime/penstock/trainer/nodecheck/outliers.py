"""Which speeds are far below what machines of the same hardware reach.

Half of a class may be slow without moving what counts as usual (median), and a class whose machines
differ by nature is judged less strictly (spread by the median absolute deviation). Speeds are
compared by their logarithms: half as fast is as far from usual as twice as fast.

Of one machine alone nothing is known, of two neither is the usual one, and the spread of a few says
little: it takes more to call one of few slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from penstock.base.robust_spread import robust_sigma

RATIO: Final = 1.5
RATIO_OF_FEW: Final = 2.5
RATIO_OF_TWO: Final = 3.0
FEW: Final = 8
SCORE: Final = 4.0
LEAST_SPREAD: Final = 0.03


class Speed(StrEnum):
    """What is measured; more is better."""

    COMPUTE = "compute"
    """Floating-point operations per second of a matrix product."""
    MEMORY = "memory"
    """Bytes per second copied within memory."""
    LINK = "link"
    """Bytes per second to and from a partner."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What the machines of one hardware class reach.

    Attributes:
        speed: the median.
        slow: below this a machine is slow; 0: too few were measured to say.
    """

    speed: float
    slow: float


def usual(speeds: Iterable[float]) -> Usual:
    """What is usual among positive speeds of one class."""
    logs = [math.log(speed) for speed in speeds if speed > 0]
    if not logs:
        return Usual(0.0, 0.0)
    if len(logs) == 1:
        return Usual(math.exp(logs[0]), 0.0)
    if len(logs) == 2:
        fastest = max(logs)  # nobody computes faster than he can; many things make one slower
        return Usual(math.exp(fastest), math.exp(fastest) / RATIO_OF_TWO)
    middle = median(logs)
    spread = robust_sigma(logs)
    ratio = RATIO_OF_FEW if len(logs) < FEW else RATIO
    distance = max(math.log(ratio), SCORE * max(spread, LEAST_SPREAD) if len(logs) > 3 else 0.0)
    return Usual(math.exp(middle), math.exp(middle - distance))


def slowdowns(speeds: Mapping[Speed, float], known: Mapping[Speed, Usual]) -> dict[Speed, float]:
    """How many times slower than usual a machine is, where it is slow."""
    return {
        what: (known[what].speed / speed if speed > 0 else math.inf)
        for what, speed in speeds.items()
        if what in known and known[what].slow > 0 and speed < known[what].slow
    }
