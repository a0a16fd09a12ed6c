"""Where the time of a job's input goes, as the page shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api.page.axis import figure
from penstock.wire.profiles import InputView

WIDTH: Final = 600.0
_TRAINING: Final = "training"
_OTHER: Final = "other waiting"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the training's time."""

    name: str
    share: str
    x: float
    width: float
    kind: int
    """Which colour: 0 for the training itself."""


@dataclass(frozen=True, slots=True)
class LimitLine:
    """The rate that one resource allows."""

    name: str
    rate: str
    binds: bool


@dataclass(frozen=True, slots=True)
class InputPanel:
    """Everything that the template shows."""

    measured: str
    rate: str
    stalled: str
    made_by: str
    segments: Sequence[Segment]
    limits: Sequence[LimitLine]
    verdict: str
    promise: str
    runner_up: str
    cut: str
    doubt: str
    width: float = WIDTH


def input_panel(view: InputView, ago: str) -> InputPanel:
    """The panel; ``ago``: how long ago it was measured, in words."""
    decision = view.decision
    promise = ""
    if decision.data_workers:
        size = f" of {decision.cores} cores" if decision.cores > 1 else ""
        promise = (
            f"{decision.data_workers} data worker{'s' * (decision.data_workers != 1)}{size} "
            f"promise {figure(decision.promised)} {view.unit} "
            f"({figure(decision.promised_low)} to {figure(decision.promised_high)}), "
            f"{figure(decision.without)} without"
        )
    return InputPanel(
        measured=ago,
        rate=f"{figure(view.rate)} {view.unit}",
        stalled=f"{view.stalled:.0%}",
        made_by=_makers(view),
        segments=segments(view.stalled, view.causes),
        limits=_limits(view.limits),
        verdict=decision.why,
        promise=promise,
        runner_up=decision.runner_up,
        cut=decision.cut_why,
        doubt=f"the model gives {1 + view.model_error:.0%} of the rate that was measured",
    )


def segments(stalled: float, causes: Mapping[str, float]) -> list[Segment]:
    """The training, what it waited for, and what of its waiting is not explained; sum to 1."""
    explained = {name: share for name, share in causes.items() if share > 0}
    total = sum(explained.values())
    if total > stalled > 0:  # rounding, or ranks that differ
        explained = {name: share * stalled / total for name, share in explained.items()}
        total = stalled
    parts = [(_TRAINING, max(0.0, 1 - max(stalled, total)))]
    parts += sorted(explained.items(), key=lambda one: -one[1])
    if stalled - total > 0.005:
        parts.append((_OTHER, stalled - total))
    found, x = [], 0.0
    for kind, (name, share) in enumerate(parts):
        width = round(WIDTH * share, 1)
        found.append(Segment(name, f"{share:.0%}", round(x, 1), width, min(kind, 5)))
        x += WIDTH * share
    return found


def _limits(limits: Mapping[str, float]) -> list[LimitLine]:
    least = min(limits.values(), default=0.0)
    ranked = sorted(limits.items(), key=lambda one: one[1])
    return [LimitLine(name, figure(rate), rate == least) for name, rate in ranked]


def _makers(view: InputView) -> str:
    parts = []
    if view.workers:
        parts.append(f"{view.workers} loader worker{'s' * (view.workers != 1)}")
    if view.data_workers:
        parts.append(f"{view.data_workers} data worker{'s' * (view.data_workers != 1)}")
    made = " and ".join(parts) or "the training process itself"
    if view.data_workers and view.cut:
        made += f" ({view.cut})"
    each = f", in each of {view.processes} training processes" if view.processes > 1 else ""
    return f"{made} on {figure(view.cores)} cores{each}"
