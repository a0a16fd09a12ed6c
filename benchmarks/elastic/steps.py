"""What the logs of the benchmark's training script say: gaps between steps, and the loss curve."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean


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
                if known is None or known["time"] < entry["time"]:
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


def stall_within(steps: list[Committed], begin_seconds: float, end_seconds: float) -> float:
    """The longest time between two committed steps of which the middle lies within a span of time.

    So each belongs to one of two faults that follow at once, of which the first lasts until the
    steps come again and the second begins with them; 0 where none lies within.
    """
    times = sorted(step.time_seconds for step in steps)
    return max(
        (
            later - earlier
            for earlier, later in pairwise(times)
            if begin_seconds <= (earlier + later) / 2 < end_seconds
        ),
        default=0.0,
    )


def compare(one: list[Committed], other: list[Committed]) -> dict[str, float]:
    """How far apart two loss curves are, over the steps that both have.

    ``largest_loss_difference`` is that of any single step, as a part of the first step's loss;
    ``largest_loss_difference_of_10_steps`` that of the means over ten steps, which is what one sees
    of a curve. Sums of floats in another order differ in the last digits, and training amplifies
    this with every step: ``first_hundred_steps`` is the first figure over those.
    """
    losses = {step.step: step.loss for step in other}
    pairs = [(step.loss, losses[step.step]) for step in one if step.step in losses]
    scale = max(pairs[0][1], 1e-12) if pairs else 1.0
    apart = [abs(ours - theirs) / scale for ours, theirs in pairs]
    signed = [(ours - theirs) / scale for ours, theirs in pairs]
    whole = range(0, max(1, len(signed) - 9), 10) if signed else ()
    tens = [abs(fmean(signed[at : at + 10])) for at in whole]
    return {
        "largest_loss_difference": max(apart, default=float("inf")),
        "largest_loss_difference_of_10_steps": max(tens, default=float("inf")),
        "first_hundred_steps": max(apart[:100], default=float("inf")),
        "steps_compared": len(pairs),
    }
