"""What the logs of the benchmark's training script say: gaps between steps, and the loss curve."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Committed:
    """One committed step, put together from what its workers logged."""

    step: int
    time_seconds: float
    world_size: int
    loss: float


def read_steps(logs: Iterable[Path]) -> list[Committed]:
    """All committed steps in order; where a step was done twice (rollback), the last one counts."""
    newest: dict[int, dict[int, dict[str, object]]] = {}
    for path in logs:
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # the worker was killed while it wrote
            for micro, loss in entry["losses"].items():
                slots = newest.setdefault(entry["step"], {})
                known = slots.get(int(micro))
                if known is None or known["time"] < entry["time"]:  # type: ignore[operator]
                    slots[int(micro)] = {**entry, "loss": loss}
    return [
        Committed(
            step=step,
            time_seconds=max(float(str(slot["time"])) for slot in slots.values()),
            world_size=max(int(str(slot["world"])) for slot in slots.values()),
            loss=sum(float(str(slot["loss"])) for slot in slots.values()),
        )
        for step, slots in sorted(newest.items())
    ]


def longest_gap(steps: list[Committed], begin_seconds: float, end_seconds: float) -> float:
    """The longest time between two committed steps of which one lies within a span of time."""
    times = sorted(step.time_seconds for step in steps)
    gaps = [
        later - earlier
        for earlier, later in pairwise(times)
        if later >= begin_seconds and earlier <= end_seconds
    ]
    return max(gaps, default=float("inf"))


def largest_difference(one: list[Committed], other: list[Committed]) -> float:
    """The largest relative difference between two loss curves, over the steps that both have."""
    losses = {step.step: step.loss for step in other}
    return max(
        (
            abs(step.loss - losses[step.step]) / max(abs(losses[step.step]), 1e-12)
            for step in one
            if step.step in losses
        ),
        default=float("inf"),
    )
