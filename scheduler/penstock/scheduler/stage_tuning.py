"""Tuning of a job whose input is made in stages by different workers, stage by stage.

GoldMiner (SIGMOD 2023, section 3.4.1) tunes the stages "by monitoring the queues between" them and
leaves open how. Here a stage's workers say which share of their time they make batches, and do not
wait for input or for room: so it is known what a stage could do if it had both. In each interval
one stage alone is changed, that which could do least of what the training takes; it gets what it
lacks if all goes on linearly, at most four times its workers. What brought less than half of that,
and less than a twentieth, is given back, and the stage has all that helps. Once nothing is lacking,
the stage with the most to spare gives back what it does not need, so that accelerators are not held
for nothing.

`step(tuning, measured, limits)` gives the next state and why; it never raises for a measurement
that is no number, it waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.scheduler.tuning import IDEAL_RATIO, KEEPING_RATIO, LEAST_KEPT_GAIN

LEAST_JUDGED: Final = 0.25
"""Growth by less is not judged by what it brought: measurements are not that exact."""
MOST_GROWTH: Final = 4
"""A stage gets at most so many times its workers at once."""
AIMED_RATIO: Final = (1 + IDEAL_RATIO) / 2
"""A stage that lacks something is to do this part of what the training takes."""
SPARE_RATIO: Final = 1.02
"""A stage gives back workers without which it could still do so many times what is needed."""


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    """One stage in one interval.

    Attributes:
        rate: batches a second that it made.
        busy: share of the time in which its workers made batches, 0 to 1.
    """

    rate: float
    busy: float

    @property
    def able(self) -> float:
        """Batches a second that it could make, had it input and room."""
        return self.rate / self.busy if self.busy > 0 else math.inf


@dataclass(frozen=True, slots=True)
class StageTuning:
    """Where the tuning of a job is.

    Attributes:
        workers: of each stage, in the order in which a batch goes through them.
        changed: the stage that was changed last; None: none is being looked at.
        before: of that, its workers, and what it was able to do.
        full: stages of which more workers bring nothing.
        is_final: nothing is to be changed as long as the measurements stay.
    """

    workers: tuple[int, ...]
    changed: int | None = None
    before: tuple[int, float] = (0, 0.0)
    full: frozenset[int] = frozenset()
    is_final: bool = False
    why: str = "one worker in each stage"


def begin(stages: int) -> StageTuning:
    """One worker in each stage."""
    return StageTuning((1,) * stages)


def step(
    tuning: StageTuning,
    measured: Sequence[MeasuredStage],
    takes: float,
    limits: Sequence[int],
    least: Sequence[int] = (),
) -> StageTuning:
    """The next state.

    Args:
        tuning: until now.
        measured: each stage in this interval.
        takes: batches a second that the training would take if it had to wait for none.
        limits: workers of each stage, at most.
        least: the same at the least; one where nothing is said.
    """
    figures = [takes, *(one.rate for one in measured), *(one.busy for one in measured)]
    if not all(math.isfinite(one) and one >= 0 for one in figures) or takes <= 0:
        return replace(tuning, why="the measurements are no numbers: wait")
    able = [one.able for one in measured]
    if (back := _given_back(tuning, able)) is not None:
        return back
    lacking = [
        number
        for number, one in enumerate(able)
        if one < IDEAL_RATIO * takes
        and number not in tuning.full
        and tuning.workers[number] < limits[number]
    ]
    if lacking:
        number = min(lacking, key=lambda one: able[one])
        own = tuning.workers[number]
        wanted = (
            math.ceil(own * AIMED_RATIO * takes / able[number]) if able[number] > 0 else own + 1
        )
        more = min(max(own + 1, wanted), MOST_GROWTH * own, limits[number])
        why = f"stage {number} could do {able[number] / takes:.0%} of what the training takes"
        return _with(tuning, number, more, able[number], why)
    return _spare(tuning, able, takes, least or (1,) * len(able))


def _given_back(tuning: StageTuning, able: Sequence[float]) -> StageTuning | None:
    """The state without the workers that were added last, where they brought too little."""
    if tuning.changed is None:
        return None
    number, (own, could) = tuning.changed, tuning.before
    grown = tuning.workers[number] / own - 1
    brought = able[number] / could - 1 if could > 0 else math.inf
    if grown < LEAST_JUDGED or brought >= min(LEAST_KEPT_GAIN, KEEPING_RATIO * grown):
        return None
    why = f"stage {number}: {tuning.workers[number]} workers brought {max(0.0, brought):.0%}"
    workers = _put(tuning.workers, number, own)
    return StageTuning(workers, None, (0, 0.0), tuning.full | {number}, why=f"{why}: given back")


def _spare(
    tuning: StageTuning, able: Sequence[float], takes: float, fewest: Sequence[int]
) -> StageTuning:
    """The state without workers that nothing waits for; final where there are none."""
    slowest = min(takes, *able)
    spare = []
    for number, own in enumerate(tuning.workers):
        needed = (
            max(fewest[number], math.ceil(own * SPARE_RATIO * slowest / able[number]))
            if able[number] > 0
            else own
        )
        if needed < own:
            spare.append((own - needed, number, needed))
    if not spare:
        return replace(tuning, changed=None, is_final=True, why="no stage lacks anything")
    _, number, needed = max(spare)
    why = f"stage {number} could do {able[number] / takes:.0%} of what the training takes"
    return _with(tuning, number, needed, able[number], why)


def _with(tuning: StageTuning, number: int, workers: int, able: float, why: str) -> StageTuning:
    return StageTuning(
        _put(tuning.workers, number, workers),
        number,
        (tuning.workers[number], able),
        tuning.full,
        why=f"{why}: {workers} workers",
    )


def _put(workers: tuple[int, ...], number: int, value: int) -> tuple[int, ...]:
    return (*workers[:number], value, *workers[number + 1 :])
