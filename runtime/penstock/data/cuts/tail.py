"""The end of each sample's way, and collating, in the program: what data workers began.

Each stage is seeded from the sample's seed and its own number, as where it runs with the others, so
a batch is the same wherever it is cut. That is not taken on trust: the first batches of a stream
that come so are made a second time, whole, and compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from penstock.data.batch_difference import first_difference
from penstock.data.cuts.head import Begun
from penstock.data.cuts.passing import replaced
from penstock.data.cuts.points import Point, list_of
from penstock.data.pipeline import Pipeline
from penstock.data.seeding import Draws, Generator, begin_sample, end_samples, seed_stage

PROVEN: Final = 2
"""Batches of a stream that are compared."""


class Tail:
    """See the module's docstring; for one stream, in the program's thread."""

    def __init__(self, pipeline: Pipeline, point: Point) -> None:
        self._pipeline, self._point = pipeline, point
        self._draws = Draws()
        self._compared = 0

    def finish(self, seed: int, indices: Any, begun: Begun) -> tuple[Any, bool]:
        """The batch, and True; False: it cannot be told from these samples, make it whole.

        That is so for a batch of which a stage draws from a generator from which none did before.

        Raises:
            Exception: whatever the user's code raises.
        """
        if len(begun.samples) != len(indices):
            return None, False
        self._draws.watch(seed, tuple(indices))
        seen = self._draws.seen
        stages = stages_from(self._pipeline, self._point)
        samples = [
            _ended(stages, seed, index, sample, way, seen)
            for index, sample, way in zip(indices, begun.samples, begun.ways, strict=True)
        ]
        if self._draws.touched():
            return None, False
        return self._pipeline.collated(seed, indices, samples), True

    def differs(self, batch: Any, make: Callable[[], Any]) -> str:
        """What is another in a batch than in the one that is made whole; "": nothing, or proven."""
        if self._compared >= PROVEN:
            return ""
        self._compared += 1
        return first_difference(make(), batch) or ""


def _ended(
    stages: list[tuple[int, Any]],
    seed: int,
    index: Any,
    sample: Any,
    way: list[Any],
    seen: Collection[Generator],
) -> Any:
    def end(value: Any) -> Any:
        for number, stage in stages:
            seed_stage(number)
            value = stage(value)
        return value

    begin_sample(seed, index, seen)
    try:
        return replaced(sample, way, end)
    finally:
        end_samples()


def stages_from(pipeline: Pipeline, point: Point) -> list[tuple[int, Any]]:
    """What a sample goes through from a cut on, with the number of each for `seed_stage`."""
    before = point.before
    if point.listed:
        return list_of(pipeline.dataset).rest(before)
    return [(before + at, stage) for at, stage in enumerate(pipeline.stages[before:], 1)]
