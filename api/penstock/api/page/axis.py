"""Scales of a chart: from values to places, and which values to write beside it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS: Final = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
    1_209_600,
    2_592_000,
    7_776_000,
)


@dataclass(frozen=True, slots=True)
class Tick:
    """One labelled value."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from values to places."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """The place of a value, to a tenth."""
        span = self.high - self.low
        share = 0.0 if span <= 0 else (value - self.low) / span
        return round(self.first + share * (self.last - self.first), 1)


def value_ticks(high: float, count: int = 4) -> list[float]:
    """Round values from 0 to at least `high`, about `count` steps."""
    if high <= 0 or not math.isfinite(high):
        return [0.0, 1.0]
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in _STEPS if each * power >= rough * (1 - 1e-9))
    steps = math.ceil(high / step - 1e-9)
    return [index * step for index in range(steps + 1)]


def time_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round moments between two times, at most about `count`."""
    span = max(high - low, 1e-9)
    step = next((each for each in _TIME_STEPS if each >= span / count), _TIME_STEPS[-1])
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return [float(index * step) for index in range(first, min(last, first + 2 * count) + 1)]


def time_label(seconds: float, span: float) -> str:
    """A moment in UTC, as exactly as the span needs."""
    form = "%H:%M:%S" if span < 900 else "%H:%M" if span < 172_800 else "%m-%d"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def figure(value: float) -> str:
    """A number for people: three digits, no exponent below a million."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value:.2e}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
