"""Samples that are made in two places: their beginning by data workers, the rest in the program.

What a data worker makes is plain data and says of itself what it is (`Begun`), so that it goes the
way of all batches, and whole batches may come among them: where a sample cannot be made in two
places a data worker makes whole ones, and says why.

Each stage is seeded from the sample's seed and its own number, as where it runs with the others, so
a batch is the same wherever it is cut. That is not taken on trust: the first batches of a stream
that come so are made a second time, whole, and compared bit by bit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from penstock.data.batch_difference import first_difference
from penstock.data.cuts.passing import HandOver, replaced
from penstock.data.cuts.plain import from_plain, to_plain
from penstock.data.cuts.points import Point, list_of
from penstock.data.errors import NotCutError, NotPortableError
from penstock.data.pipeline import Pipeline
from penstock.data.seeding import Draws, Generator, begin_sample, end_samples, seed_stage
from penstock.data.transport.batch_codec import Packer

logger = logging.getLogger(__name__)

PROVEN: Final = 2
"""Batches of a stream that are compared."""

_NOWHERE: Final = Point("", 0, listed=False)
_MARK: Final = "penstock: samples in the middle of their way"


@dataclass(frozen=True)
class Begun:
    """The samples of a batch, each with its stages up to a cut.

    ``ways``: to the value in each sample that goes on through the stages.
    """

    samples: list[Any]
    ways: list[list[Any]]
    point: Point


def opened(batch: Any) -> tuple[Any, str]:
    """A batch as it came, or `Begun`; and why a data worker made it whole, "" where nothing is.

    For the batches of a `HeadPipeline`, and of whoever else makes some of the same stream.
    """
    if type(batch) is not dict or _MARK not in batch:
        return batch, ""
    why, made = batch[_MARK], batch["samples"]
    if why:
        return made, why
    return Begun(from_plain(made), batch["ways"], Point(*batch["point"])), ""


def is_marked(batch: Any) -> bool:
    """Whether `opened` has something to do."""
    return type(batch) is dict and _MARK in batch


def is_begun(batch: Any) -> bool:
    """Whether `opened` would give `Begun`, as far as can be seen at once."""
    return is_marked(batch) and batch[_MARK] == ""


@dataclass
class _Found:
    """What is learned in the process that makes the batches."""

    why: str = ""  # samples cannot be made in two places
    sent: bool = False  # such samples can be sent
    hand: HandOver = field(default_factory=HandOver)

    def __reduce__(self) -> tuple[type[_Found], tuple[()]]:
        return _Found, ()


@dataclass(frozen=True)
class HeadPipeline(Pipeline):
    """See the module's docstring; made by `head_of`."""

    point: Point = _NOWHERE
    found: _Found = field(default_factory=_Found, compare=False, repr=False)

    def make(
        self, seed: int, indices: Any, bad: list[Any] | None = None, *, until: int | None = None
    ) -> Any:
        """The batch's samples up to the cut, or the whole batch and why; as `opened` reads it."""
        if not self.found.why:
            try:
                return self._begun(seed, indices)
            except NotCutError as error:
                self.found.why = str(error)
                logger.warning(
                    "whole batches are made here, and none to its end elsewhere: %s", error
                )
        whole = self._whole.make(seed, indices, bad, until=until)
        return {_MARK: self.found.why, "samples": whole}

    @property
    def _whole(self) -> Pipeline:
        """What makes whole batches, with what has been learned of their draws."""
        return Pipeline(self.dataset, self.collate, self.stages, draws=self.draws)

    def _begun(self, seed: int, indices: Any) -> Any:
        with self._ended():
            made = self.samples(seed, indices)
        samples = [to_plain(sample) for _, sample in made]
        if not self.found.sent:
            try:
                Packer().pack(samples)
            except NotPortableError as error:
                raise NotCutError(f"a sample cannot be sent in the middle: {error}") from error
            self.found.sent = True
        ways, point = [way for way, _ in made], [*astuple(self.point)]
        return {_MARK: "", "point": point, "ways": ways, "samples": samples}

    def _ended(self) -> AbstractContextManager[None]:
        if not self.point.listed:
            return nullcontext()
        return list_of(self.dataset).ended(self.point.before, self.found.hand)

    def _sample(self, index: Any) -> Any:
        self.found.hand.begin()
        return super()._sample(index)

    def _staged(self, sample: Any) -> Any:
        if self.point.listed:
            return self.found.hand.find(sample)
        for number, stage in enumerate(self.stages[: self.point.before], 1):
            seed_stage(number)
            sample = stage(sample)
        return [], sample


def head_of(pipeline: Pipeline, point: Point) -> HeadPipeline:
    """A pipeline's beginning, up to a cut."""
    return HeadPipeline(
        pipeline.dataset,
        pipeline.collate,
        pipeline.stages,
        prepare=pipeline.prepare,
        watched=pipeline.watched,
        point=point,
    )


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
        samples = go_on(stages, seed, indices, begun, seen)
        if self._draws.touched():
            return None, False
        return self._pipeline.collated(seed, indices, samples), True

    @property
    def is_proven(self) -> bool:
        """Whether as many were compared as are to be."""
        return self._compared >= PROVEN

    def differs(self, batch: Any, make: Callable[[], Any]) -> str:
        """What is another in a batch than in the one that is made whole; "": nothing, or proven."""
        if self._compared >= PROVEN:
            return ""
        self._compared += 1
        return first_difference(make(), batch) or ""


def go_on(
    stages: list[tuple[int, Any]],
    seed: int,
    indices: Any,
    begun: Begun,
    seen: Collection[Generator],
) -> list[Any]:
    """The samples of a batch after these stages more; ``seen``: generators that are seeded."""

    def end(value: Any) -> Any:
        for number, stage in stages:
            seed_stage(number)
            value = stage(value)
        return value

    made = []
    for index, sample, way in zip(indices, begun.samples, begun.ways, strict=True):
        begin_sample(seed, index, seen)
        try:
            made.append(replaced(sample, way, end))
        finally:
            end_samples()
    return made


def stages_from(pipeline: Pipeline, point: Point) -> list[tuple[int, Any]]:
    """What a sample goes through from a cut on, with the number of each for `seed_stage`."""
    before = point.before
    if point.listed:
        return list_of(pipeline.dataset).rest(before)
    return [(before + at, stage) for at, stage in enumerate(pipeline.stages[before:], 1)]
