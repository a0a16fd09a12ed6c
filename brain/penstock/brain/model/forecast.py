"""How long a job will take, and what it will use, from jobs like it that have finished; pure.

Jobs are alike as `history_create` has it (DLRover, section 4.3): the most specific parts of the
signature that enough of them share. What the newest `MOST_JOBS` of those took is the estimate: the
median of the logarithm, since jobs differ by factors. How far off such estimates are is not assumed
but looked up: every finished job is estimated from those that had finished before, and the errors
of these estimates, in units of their own spread, give the interval (split conformal prediction:
Vovk et al., *Algorithmic Learning in a Random World*, 2005). So in nine of ten cases the interval
holds what comes, whatever the distribution, as long as the next job is drawn as the last ones were.

Guarantees: no interval without `LEAST_COMPARISONS` comparisons behind it, and no estimate without a
finished job; both are said.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from penstock.brain.model.robust_statistics import robust_sigma
from penstock.brain.planning import LEVELS, Signature

COVERED: Final = 0.9
"""Share of cases in which an interval holds what comes."""
LEAST_COMPARISONS: Final = 20
"""Estimates that must have been compared with what came: with fewer a share of nine in ten has no
meaning."""
ENOUGH_JOBS: Final = 3
"""A level of similarity with fewer jobs is used only when no level has as many."""
MOST_COMPARISONS: Final = 500
"""The newest of them count."""
MOST_JOBS: Final = 20
"""Of more jobs that are alike the newest count: programs change."""
KNOWN_SPREAD: Final = 5
"""Jobs that are alike whose own spread says as much as that of all jobs does."""
_LEAST_SPREAD: Final = 0.02
"""Of the logarithm: runs that agree to a hair are not taken for exact."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One job that has succeeded, and one figure of it: seconds, core-seconds, or an amount."""

    signature: Signature
    finished_seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one figure of a job will be.

    Attributes:
        value: most likely.
        low, high: nine of ten lie between; None: too little is known for that.
        jobs: that were alike.
        level: what of the signature they share.
        comparisons: estimates that the interval stands on.
    """

    value: float
    low: float | None
    high: float | None
    jobs: int
    level: tuple[str, ...]
    comparisons: int


@dataclass(frozen=True, slots=True)
class _Compared:
    """An estimate and what came: how far off the logarithm was, and of how many jobs it was made,
    with what spread."""

    error: float
    jobs: int
    sigma: float

    def spread(self, usual: float) -> float:
        """How far off it was to be expected: as all are, and the more of its own the more jobs."""
        own = self.sigma if self.jobs >= KNOWN_SPREAD else usual
        square = (self.jobs * own**2 + KNOWN_SPREAD * usual**2) / (self.jobs + KNOWN_SPREAD)
        return max(math.sqrt(square), _LEAST_SPREAD)


class Forecaster:
    """Learns from finished jobs, oldest first; asked about the next one."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[int, tuple[str, ...]], deque[float]] = defaultdict(
            lambda: deque(maxlen=MOST_JOBS)
        )
        self._compared: deque[_Compared] = deque(maxlen=MOST_COMPARISONS)

    @classmethod
    def of(cls, finished: Iterable[Finished]) -> Forecaster:
        """One that has learned from these."""
        made = cls()
        for one in sorted(finished, key=lambda each: each.finished_seconds):
            made.learn(one)
        return made

    def learn(self, one: Finished) -> None:
        """Compare an estimate with what came of a job, and keep that for the next."""
        if not 0 < one.value < math.inf:
            return  # nothing that a ratio could be made of
        known = self._alike(one.signature)
        if known is not None:
            _, logs = known
            error = math.log(one.value) - median(logs)
            self._compared.append(_Compared(error, len(logs), robust_sigma(logs)))
        for number, level in enumerate(LEVELS):
            if all(key := _key(one.signature, level)):
                self._values[number, key].append(math.log(one.value))

    def estimate(self, signature: Signature) -> Estimate | None:
        """What is to be expected of a job with this signature; None: of none like it is known."""
        known = self._alike(signature)
        if known is None:
            return None
        number, logs = known
        centre, compared = median(logs), self._compared
        low = high = None
        if len(compared) >= LEAST_COMPARISONS:
            usual = median(abs(one.error) for one in compared)
            errors = sorted(one.error / one.spread(usual) for one in compared)
            spread = _Compared(0.0, len(logs), robust_sigma(logs)).spread(usual)
            below, above = _quantiles(errors)
            low, high = math.exp(centre + spread * below), math.exp(centre + spread * above)
        return Estimate(math.exp(centre), low, high, len(logs), LEVELS[number], len(compared))

    def _alike(self, signature: Signature) -> tuple[int, Sequence[float]] | None:
        best: tuple[int, Sequence[float]] | None = None
        for number, level in enumerate(LEVELS):
            key = _key(signature, level)
            found = self._values.get((number, key)) if all(key) else None
            if found and len(found) >= ENOUGH_JOBS:
                return number, found
            if found and best is None:
                best = number, found
        return best


def _key(signature: Signature, level: Sequence[str]) -> tuple[str, ...]:
    return tuple(getattr(signature, part) for part in level)


def _quantiles(errors: Sequence[float]) -> tuple[float, float]:
    """The errors between which the next one lies in `COVERED` of all cases, of sorted ones."""
    count, outside = len(errors), (1 - COVERED) / 2
    below = max(0, math.floor((count + 1) * outside) - 1)
    above = min(count - 1, math.ceil((count + 1) * (1 - outside)) - 1)
    return errors[below], errors[above]
