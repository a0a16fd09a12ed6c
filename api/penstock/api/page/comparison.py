"""Two jobs side by side: what they do, where their input's time goes, what is decided. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.api.page.axis import figure
from penstock.wire.profiles import InputView

NONE = "not measured"


@dataclass(frozen=True, slots=True)
class Compared:
    """What is known of one of the two."""

    name: str
    phase: str
    strategy: str
    step: str
    steps_per_second: float
    workers: int
    plans: int
    input: InputView | None


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both, and how the second is to the first; empty where that says nothing."""

    name: str
    first: str
    second: str
    ratio: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The table."""

    first: str
    second: str
    rows: Sequence[Row]


def compare(first: Compared, second: Compared) -> Comparison:
    """The second beside the first."""
    rows = [
        Row("Phase", first.phase, second.phase),
        Row("Strategy", first.strategy, second.strategy),
        Row("Step", first.step, second.step),
        _rates("Steps/s", first.steps_per_second, second.steps_per_second),
        Row("Workers", str(first.workers), str(second.workers)),
        Row("Plans", str(first.plans), str(second.plans)),
    ]
    ours, theirs = first.input, second.input
    if ours is not None or theirs is not None:
        rows.append(Row("Waiting for input", _share(ours), _share(theirs)))
        rows += _both("waits: ", _causes(ours), _causes(theirs))
        rows += _both("limit: ", _limits(ours), _limits(theirs))
        rows.append(Row("Data workers", _data_workers(ours), _data_workers(theirs)))
        rows.append(Row("What is decided", _why(ours), _why(theirs)))
    return Comparison(first.name, second.name, rows)


def _rates(name: str, first: float, second: float) -> Row:
    ratio = f"{second / first:.2f}" if first > 0 and second > 0 else ""
    return Row(name, figure(first), figure(second), ratio)


def _both(prefix: str, first: Mapping[str, str], second: Mapping[str, str]) -> list[Row]:
    names = dict.fromkeys(chain(first, second))
    return [Row(prefix + name, first.get(name, ""), second.get(name, "")) for name in names]


def _share(view: InputView | None) -> str:
    return NONE if view is None else f"{view.stalled:.0%}"


def _causes(view: InputView | None) -> dict[str, str]:
    causes = {} if view is None else view.causes
    return {name: f"{share:.0%}" for name, share in sorted(causes.items(), key=lambda one: -one[1])}


def _limits(view: InputView | None) -> dict[str, str]:
    return (
        {}
        if view is None
        else {name: f"{figure(rate)} {view.unit}" for name, rate in view.limits.items()}
    )


def _data_workers(view: InputView | None) -> str:
    return NONE if view is None else str(view.data_workers * view.processes)


def _why(view: InputView | None) -> str:
    return NONE if view is None else view.decision.why
