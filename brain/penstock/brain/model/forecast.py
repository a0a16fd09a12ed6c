"""How long a job will take, and what it will use, from jobs like it that have finished; pure.

Jobs are alike as `history_create` has it (DLRover, section 4.3): the most specific parts of the
signature that enough of them share. What the newest `MOST_JOBS` of those took is the estimate: the
median of the logarithm, since jobs differ by factors. How far off such estimates are is not assumed
but looked up: every finished job is estimated from those that had finished when it *began*, and the
errors of these estimates, in units of their own spread, give the interval (split conformal
prediction: Vovk et al., *Algorithmic Learning in a Random World*, 2005). An estimate at the job's
end would know of others that began beside it and ended sooner, which are often much like it.

The next job is not always drawn as the last ones were, so the share of errors that an interval
leaves out follows what came (adaptive conformal inference: Gibbs and Candes, NeurIPS 2021): each
interval that did not hold makes the next ones wider, and each that did a little narrower.

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

import numpy as np
from numpy.typing import NDArray

from penstock.brain.model.robust_statistics import robust_sigma
from penstock.brain.planning import LEVELS, Signature

Numbers = NDArray[np.float64]

COVERED: Final = 0.9
"""Share of cases in which an interval holds what comes."""
LEAST_COMPARISONS: Final = 20
"""Estimates that must have been compared with what came: with fewer a share of nine in ten has no
meaning."""
ENOUGH_JOBS: Final = 3
"""A level of similarity with fewer jobs is used only when no level has as many."""
MOST_COMPARISONS: Final = 500
"""The newest of them count."""
ADAPTATION: Final = 0.005
"""Of what an interval held too little or too much, the part that the next one makes up for."""
OUTSIDE_BOUNDS: Final = (0.002, 0.5)
"""Shares of errors that intervals may leave out: of `MOST_COMPARISONS` one, and half of all."""
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
    began_seconds: float
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
class Expected:
    """An estimate before the job has ended: of how many jobs, with what spread of their own.

    ``centre`` and ``within`` are logarithms.
    """

    level: int
    jobs: int
    centre: float
    sigma: float
    within: tuple[float, float] | None


class _Comparisons:
    """The newest estimates with what came of each."""

    def __init__(self) -> None:
        self._rows = np.empty((MOST_COMPARISONS, 3))
        self._seen = 0
        self._outside = 1 - COVERED

    def __len__(self) -> int:
        return min(self._seen, MOST_COMPARISONS)

    def add(self, expected: Expected, error: float) -> None:
        """What came of an estimate: how far off the logarithm was."""
        self._rows[self._seen % MOST_COMPARISONS] = error, expected.jobs, expected.sigma
        self._seen += 1
        if expected.within is not None:
            low, high = expected.within
            missed = not low <= expected.centre + error <= high
            wanted = self._outside + ADAPTATION * (1 - COVERED - missed)
            self._outside = min(max(wanted, OUTSIDE_BOUNDS[0]), OUTSIDE_BOUNDS[1])

    def errors(self, jobs: int, sigma: float) -> tuple[float, float] | None:
        """Between which the error of an estimate of so many jobs will lie."""
        count = len(self)
        if count < LEAST_COMPARISONS:
            return None
        errors, numbers, sigmas = self._rows[:count].T
        usual = float(np.median(np.abs(errors)))
        units = np.sort(errors / _spread(numbers, sigmas, usual))
        spread = float(_spread(np.array([jobs]), np.array([sigma]), usual)[0])
        beyond = self._outside / 2
        below = max(0, math.floor((count + 1) * beyond) - 1)
        above = min(count - 1, math.ceil((count + 1) * (1 - beyond)) - 1)
        return spread * float(units[below]), spread * float(units[above])


def _spread(jobs: Numbers, sigmas: Numbers, usual: float) -> Numbers:
    """How far off estimates were to be expected: as all are, and the more of their own the more
    jobs."""
    own = np.where(jobs >= KNOWN_SPREAD, sigmas, usual)
    square = (jobs * own**2 + KNOWN_SPREAD * usual**2) / (jobs + KNOWN_SPREAD)
    spread: Numbers = np.maximum(np.sqrt(square), _LEAST_SPREAD)
    return spread


class Forecaster:
    """Learns from jobs as they begin and finish; asked about the next one."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[int, tuple[str, ...]], deque[float]] = defaultdict(
            lambda: deque(maxlen=MOST_JOBS)
        )
        self._compared = _Comparisons()

    @classmethod
    def of(cls, finished: Iterable[Finished]) -> Forecaster:
        """One that has learned from these, in the order in which they began and finished."""
        made, jobs = cls(), list(finished)
        begins = [(job.began_seconds, True, number) for number, job in enumerate(jobs)]
        ends = [(job.finished_seconds, False, number) for number, job in enumerate(jobs)]
        expected: dict[int, Expected | None] = {}
        for _, begin, number in sorted(begins + ends):
            if begin:
                expected[number] = made.expected(jobs[number].signature)
            else:
                made.learn(jobs[number], expected.pop(number, None))
        return made

    def learn(self, one: Finished, expected: Expected | None) -> None:
        """Compare what was expected when a job began with what came, and keep that for the next.

        Args:
            one: the job.
            expected: as `expected` said when it began; None: that is not known.
        """
        if not 0 < one.value < math.inf:
            return  # nothing that a ratio could be made of
        value = math.log(one.value)
        if expected is not None:
            self._compared.add(expected, value - expected.centre)
        for number, level in enumerate(LEVELS):
            if all(key := _key(one.signature, level)):
                self._values[number, key].append(value)

    def expected(self, signature: Signature) -> Expected | None:
        """What is to be expected of a job that begins; None: of none like it is known."""
        known = self._alike(signature)
        if known is None:
            return None
        level, logs = known
        centre, sigma = median(logs), robust_sigma(logs)
        errors = self._compared.errors(len(logs), sigma)
        within = None if errors is None else (centre + errors[0], centre + errors[1])
        return Expected(level, len(logs), centre, sigma, within)

    def estimate(self, signature: Signature) -> Estimate | None:
        """What is to be expected of a job with this signature; None: of none like it is known."""
        found = self.expected(signature)
        if found is None:
            return None
        low, high = (None, None) if found.within is None else map(math.exp, found.within)
        return Estimate(
            math.exp(found.centre), low, high, found.jobs, LEVELS[found.level], len(self._compared)
        )

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
