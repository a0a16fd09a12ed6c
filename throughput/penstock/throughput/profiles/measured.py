"""A figure that was measured: never without its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.figures import MOST_RATE, hold_number, hold_whole

_T95: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t for 95 % and 1 to 10 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with the interval that holds it in 95 of 100 measurements.

    Attributes:
        value: the best estimate.
        low, high: ends of the interval; ``low <= value <= high``.
        samples: how many observations it rests on; 0 for what was given and not measured.
    """

    value: float
    low: float
    high: float
    samples: int = 0

    def __post_init__(self) -> None:
        """Hold the order of the three."""
        for name in ("value", "low", "high"):
            hold_number(name, getattr(self, name), -MOST_RATE, MOST_RATE)
        hold_whole("samples", self.samples, 0)
        if not self.low <= self.value <= self.high:
            raise ProfileError(
                f"value: {self.value} is outside its interval {self.low} to {self.high}"
            )

    @classmethod
    def given(cls, value: float) -> Measured:
        """What is known and was not measured."""
        return cls(value, value, value)

    @classmethod
    def mean_of(cls, values: Sequence[float]) -> Measured:
        """The mean, with Student's interval; the extremes where there are too few for one.

        Raises:
            ProfileError: there are none.
        """
        if not values:
            raise ProfileError("nothing was measured")
        mean = statistics.fmean(values)
        if len(values) == 1:
            return cls(mean, mean, mean, 1)
        half = student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
        return cls(mean, mean - half, mean + half, len(values))

    @property
    def relative_error(self) -> float:
        """Half of the interval's width as a share of the value; 0 for a value of 0."""
        return (self.high - self.low) / 2 / abs(self.value) if self.value else 0.0

    def scaled(self, factor: float) -> Measured:
        """The same in another unit; ``factor`` is positive."""
        return Measured(self.value * factor, self.low * factor, self.high * factor, self.samples)

    def inverse(self) -> Measured:
        """As a rate, if it is a time, and the other way round.

        Raises:
            ProfileError: the interval reaches 0.
        """
        if self.low <= 0:
            raise ProfileError(f"no rate can be made of {self.low} to {self.high}")
        return Measured(1 / self.value, 1 / self.high, 1 / self.low, self.samples)

    def holds(self, value: float) -> bool:
        """Whether a value is inside the interval."""
        return self.low <= value <= self.high

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"value": self.value, "low": self.low, "high": self.high, "samples": self.samples}


def student(degrees: int) -> float:
    """Student's t for 95 %, two-sided; within 1 % of the tables."""
    if degrees < 1:
        return _T95[0]
    if degrees <= len(_T95):
        return _T95[degrees - 1]
    return 1.96 + 2.5 / degrees
