"""What a benchmark has to reach, and how its figures end: as one JSON object, or as tables.

A goal that was missed makes the command's exit code 1. Intervals are those of Student's t: a
handful of paired runs, of which nothing is known but that they are alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any, Final

_T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip  # a table of 10 columns: degrees of freedom 1 to 30
_Z_975: Final = 1.960


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % confidence interval; without one (None) where there is one value."""

    mean: float
    low: float | None
    high: float | None
    count: int


def interval_of(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval of values that are alike; ValueError if there is none."""
    if not values:
        raise ValueError("no value")
    middle, count = mean(values), len(values)
    if count == 1:
        return Interval(round(middle, 4), None, None, 1)
    degrees = count - 1
    # Beyond the table the first term of the expansion in 1/n is right to three digits.
    quantile = (
        _T_975[degrees - 1]
        if degrees <= len(_T_975)
        else _Z_975 + (_Z_975**3 + _Z_975) / (4 * degrees)
    )
    half = quantile * stdev(values) / math.sqrt(count)
    return Interval(round(middle, 4), round(middle - half, 4), round(middle + half, 4), count)


def error_of(rates: Sequence[float]) -> float:
    """Standard error of their mean, as a share of it; 0 of a single one."""
    if len(rates) < 2:
        return 0.0
    return stdev(rates) / math.sqrt(len(rates)) / mean(rates)


@dataclass(frozen=True)
class Goal:
    """One goal: what is wanted, what was found, and whether that is enough."""

    name: str
    goal: str
    got: Any
    ok: bool


def at_least(name: str, bound: float, got: float | None) -> Goal:
    """A figure that is to be at least ``bound``; None, of what could not be found, is not."""
    return Goal(name, f">= {bound}", got, got is not None and got >= bound)


def at_most(name: str, bound: float, got: float | None) -> Goal:
    """A figure that is to be at most ``bound``; None, of what could not be found, is not."""
    return Goal(name, f"<= {bound}", got, got is not None and got <= bound)


def equal(name: str, differing: Iterable[str]) -> Goal:
    """Things that are to be alike, of which these are not."""
    found = sorted(differing)
    return Goal(name, "none differs", found, not found)


def report(result: dict[str, Any], goals: Sequence[Goal], *, as_json: bool) -> int:
    """Print the figures and say how the command is to end.

    Args:
        result: the figures; its lists of objects with the same keys are tables.
        goals: put into the result as ``goals``.
        as_json: one JSON object instead of tables.

    Returns:
        The exit code: 1 if a goal was missed.
    """
    result = {**result, "goals": [asdict(goal) for goal in goals]}
    if as_json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
                print(f"\n{key}\n{table(value)}")
            else:
                print(f"{key}: {value}")
    return 0 if all(goal.ok for goal in goals) else 1


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as text, one column for each key of any."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [keys, *([_text(row.get(key)) for key in keys] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(keys))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
