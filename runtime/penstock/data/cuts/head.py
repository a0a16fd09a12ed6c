"""A pipeline of which data workers make the beginning of each sample, and the program the rest.

What it makes is plain data and says of itself what it is (`Begun`), so that it goes the way of all
batches, and whole batches may come among them: where a sample cannot be made in two places a data
worker makes whole ones, and says why.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from penstock.data.cuts.passing import HandOver, NotCutError
from penstock.data.cuts.plain import from_plain, to_plain
from penstock.data.cuts.points import Point, list_of
from penstock.data.errors import NotPortableError
from penstock.data.pipeline import Pipeline
from penstock.data.seeding import seed_stage
from penstock.data.transport.batch_codec import Packer

logger = logging.getLogger(__name__)

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
