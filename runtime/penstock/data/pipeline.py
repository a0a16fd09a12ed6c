"""An input pipeline as a value: what to read, what to do with it, and what makes a batch of it.

A pipeline says nothing of order, seeds or who computes: those come with each request. It is packed
with cloudpickle (classes of ``__main__`` travel by value) and signed with the job's token; a data
worker opens it only if the signature is right, so only holders of the token can have code run.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.data.errors import NotPortableError, SignatureError
from penstock.data.kept import kept_functions
from penstock.data.ledger import derive_seed
from penstock.data.origin import Origin
from penstock.data.seeding import (
    ALL,
    Draws,
    Generator,
    begin_sample,
    end_samples,
    seed_for,
    seed_stage,
)
from penstock.data.signature import sign, signed
from penstock.data.stage_devices import CPU, CUDA, call_on
from penstock.data.stages import seed_stages
from penstock.data.weight_bundle import Weights

WATCHED_FROM: Final = 8
"""Samples of a batch from which it pays to watch `Draws` instead of seeding for each."""
MAX_PIPELINE_BYTES: Final = 256 << 20
_LENGTH: Final = struct.Struct("<I")


class BatchId(NamedTuple):
    """Which batch of a job this is."""

    group: str  # the consumers that share one stream of data
    consumer: int  # place in the group
    epoch: int
    step: int

    def __str__(self) -> str:
        return f"{self.group}[{self.consumer}] epoch {self.epoch} step {self.step}"


@dataclass(frozen=True)
class Stage:
    """One step of the way of a sample or, ``batched``, of a whole batch after it was collated.

    ``device``: ``"cpu"``, or for a batched stage ``"cuda"``: its function is then given the batch
    with its tensors there, and what it returns comes back to main memory.

    Raises:
        ValueError: there is no such stage; says why.
    """

    function: Callable[[Any], Any]
    device: str = CPU
    batched: bool = False
    random: bool = True
    """False: it draws nothing, so that its result for a file may be kept (``input.cache.form``)."""

    def __post_init__(self) -> None:
        if self.device not in (CPU, CUDA):
            raise ValueError(f"device: {self.device!r}; a stage is on {CPU!r} or {CUDA!r}")
        if self.device != CPU and not self.batched:
            raise ValueError(
                f"device: {self.device!r}; stages of single samples are on {CPU!r}: give "
                "batched=True"
            )

    def __call__(self, sample: Any) -> Any:
        """The next step's sample."""
        kept = None if self.random else kept_functions()
        return (self.function if kept is None else kept.of(self.function))(sample)


class AnyPipeline:
    """What makes batches, and may be packed: of a dataset that is indexed, or iterated."""

    @property
    def weights(self) -> tuple[Weights, ...]:
        """Large tensors of its functions, which are not packed with it."""
        return ()


@dataclass(frozen=True)
class Pipeline(AnyPipeline):
    """What makes a batch of some indices.

    ``dataset[index]`` gives a sample (``dataset.__getitems__(indices)``, if there is one, gives all
    of a batch), every stage is applied to it, and ``collate`` makes a batch of the list of samples,
    to which the batched stages are applied. What one of these draws depends on (seed, indices,
    number of the stage) alone.
    With ``batched=False`` an item of the sampler is one index, and ``collate`` gets one sample.
    """

    dataset: Any
    collate: Callable[[Any], Any]
    stages: Sequence[Stage] = ()
    batched: bool = True
    prepare: Callable[[int], None] | None = None
    """What is done, given a number, in each process that is to make its batches (but never in the
    program's own): PyTorch's ``worker_init_fn``."""
    batch_stage: Callable[[Any], Any] | None = None
    """What is done with a whole batch after it was collated."""
    watched: bool = False
    """What making batches does to the dataset is the program's to see
    (`penstock.data.dataset_watch`)."""
    draws: Draws = field(default_factory=Draws, compare=False, repr=False)

    @property
    def weights(self) -> tuple[Weights, ...]:
        """Of its ``batch_stage``, if that has any."""
        found: tuple[Weights, ...] = getattr(self.batch_stage, "weights", ())
        return found

    @property
    def batched_stages(self) -> tuple[Stage, ...]:
        """Those of whole batches, ``batch_stage`` included."""
        found = [stage for stage in self.stages if stage.batched]
        if self.batch_stage is not None:
            found.append(Stage(self.batch_stage, batched=True))
        return tuple(found)

    @property
    def boundary(self) -> int:
        """Batched stages of data workers of stage 0, where others run the rest.

        Those before the first with a device; where none has one, none.
        """
        devices = [stage.device for stage in self.batched_stages]
        return next((number for number, one in enumerate(devices) if one != CPU), 0)

    def make(
        self, seed: int, indices: Any, bad: list[Any] | None = None, *, until: int | None = None
    ) -> Any:
        """The batch of these indices; a pure function of pipeline, seed and indices.

        Made as far as before the batched stage ``until``; None: whole. With ``bad``, a sample that
        raises is left out and noted there as ``(index, error)``. Otherwise what raises, raises:
        `position_of` then says at which index.
        """
        if not self.draws.stages_seeded:
            self.draws.stages_seeded = True
            seed_stages(self.dataset)
        if not self.batched:
            begin_sample(seed, indices, ALL)
            try:
                sample = self._sample(indices)
            except Exception as error:
                if bad is None:
                    _mark(error, indices)
                    raise
                bad.append((indices, error))
                return None
            finally:
                end_samples()
            return self.finish(seed, indices, self.collate(sample), 0, until)
        samples = self.samples(seed, indices, bad)
        if bad is not None and not samples:
            return None
        return self.collated(seed, indices, samples, until=until)

    def samples(self, seed: int, indices: Any, bad: list[Any] | None = None) -> list[Any]:
        """The samples of a batch, before they are collated; as `make`."""
        if not self.draws.stages_seeded:
            self.draws.stages_seeded = True
            seed_stages(self.dataset)
        fetch = getattr(self.dataset, "__getitems__", None)
        if fetch is not None and bad is None:
            seed_for(seed, tuple(indices))
            return [self._staged(sample) for sample in fetch(indices)]
        return self._samples(seed, list(indices), bad)

    def collated(
        self, seed: int, indices: Any, samples: list[Any], *, until: int | None = None
    ) -> Any:
        """The batch of such samples; ``until``: as `make`."""
        seed_for(seed, tuple(indices))
        return self.finish(seed, indices, self.collate(samples), 0, until)

    def finish(
        self, seed: int, indices: Any, batch: Any, begin: int, until: int | None = None
    ) -> Any:
        """A batch that is made as far as before the batched stage ``begin``, made further."""
        name = tuple(indices) if self.batched else indices
        for number, stage in enumerate(self.batched_stages[:until]):
            if number < begin:
                continue
            function = stage.function
            if function is not self.batch_stage:  # which seeds for itself, and is compared
                seed_for(derive_seed(seed, number + 1), name)
            elif (with_seed := getattr(function, "with_seed", None)) is not None:
                function = with_seed(seed)
            batch = call_on(stage.device, function, batch)
        return batch

    def _samples(self, seed: int, indices: list[Any], bad: list[Any] | None) -> list[Any]:
        if len(indices) < WATCHED_FROM:
            return self._seeded(seed, indices, bad, ALL)
        while True:  # once, and again for each generator that is found to be drawn from
            raised: list[Any] | None = None if bad is None else []
            samples = self._watched(seed, indices, raised)
            if samples is not None:
                if bad is not None and raised:
                    bad += raised
                self.draws.told = True
                return samples

    def _watched(self, seed: int, indices: list[Any], bad: list[Any] | None) -> list[Any] | None:
        """The samples; None if they drew from a generator of which that was not known."""
        draws = self.draws
        draws.watch(seed, tuple(indices))
        samples: list[Any] = []
        try:
            # As long as nothing is known the first sample tells, mostly.
            for part in (indices,) if draws.told else (indices[:1], indices[1:]):
                samples += self._seeded(seed, part, bad, draws.seen)
                if draws.touched():
                    return None
        except Exception:
            if draws.touched():
                return None
            raise
        return samples

    def _seeded(
        self,
        seed: int,
        indices: list[Any],
        bad: list[Any] | None,
        generators: Collection[Generator],
    ) -> list[Any]:
        samples = []
        try:
            for index in indices:
                if generators:
                    begin_sample(seed, index, generators)
                try:
                    samples.append(self._sample(index))
                except Exception as error:
                    if bad is None:
                        _mark(error, index)
                        raise
                    bad.append((index, error))
        finally:
            end_samples()
        return samples

    def _sample(self, index: Any) -> Any:
        if (kept := kept_functions()) is None:
            return self._staged(self.dataset[index])
        with kept.loading(self.dataset):
            sample = self.dataset[index]
        return self._staged(sample)

    def _staged(self, sample: Any) -> Any:
        for number, stage in enumerate(self.stages, 1):
            if stage.batched:
                break  # they come last
            seed_stage(number)
            sample = stage(sample)
        return sample


def _mark(error: Exception, index: Any) -> None:
    with contextlib.suppress(AttributeError):  # a class with slots
        # Read again where the error is reported.
        error.__penstock_index__ = index  # type: ignore[attr-defined]


def position_of(error: BaseException) -> Any:
    """The index at which `Pipeline.make` raised this; None if it was none of them."""
    return getattr(error, "__penstock_index__", None)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A batch that lacks the batched stages from ``begin`` on."""

    batch: Any
    begin: int


@dataclass(frozen=True)
class PackedPipeline:
    """A pipeline on its way; ``weights``: large tensors, for those who ask for them."""

    digest: bytes
    signature: bytes
    blob: bytes
    weights: tuple[Weights, ...] = field(default=(), compare=False)


def pack_pipeline(pipeline: AnyPipeline, token: str) -> PackedPipeline:
    """Pack and sign.

    Raises:
        NotPortableError: something in it cannot be pickled, or it is too large; says what.
    """
    from penstock.data.bounded_pickle import dumps_within

    named: set[str] = set()
    try:
        pickled = dumps_within(pipeline, MAX_PIPELINE_BYTES, named)
    except NotPortableError:
        raise
    except Exception as error:  # pickling runs code of the user's classes
        raise NotPortableError(
            f"the dataset or collate function cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    place = Origin.here(named, pickled).packed()
    blob = _LENGTH.pack(len(place)) + place + pickled
    digest = hashlib.sha256(blob).digest()
    return PackedPipeline(digest, sign(token, blob), blob, pipeline.weights)


def open_pipeline(
    blob: bytes | memoryview,
    signature: object,
    token: str,
    *,
    place: bool = True,
    checked: bool = True,
) -> AnyPipeline:
    """Check and unpack, in the place it comes from as far as that exists here.

    Without ``place`` this process stays in the folder, and has the arguments, that it has; with
    ``checked`` its modules are to have the code that they have there.

    Raises:
        SignatureError: it was not signed with this job's token.
        NotPortableError: it cannot be opened here; says why.
    """
    if not signed(token, blob, signature):
        raise SignatureError("the pipeline's signature is not of this job's token: not opened")
    start = _LENGTH.size + _LENGTH.unpack_from(blob)[0]
    origin = Origin.unpacked(blob[_LENGTH.size : start])
    origin.take(whole=place)
    try:
        # The signature above is what makes this safe: it is the job's own definition.
        pipeline = pickle.loads(memoryview(blob)[start:])  # noqa: S301
    except Exception as error:  # unpickling runs code of the user's classes
        raise NotPortableError(
            f"the pipeline cannot be opened here: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(pipeline, AnyPipeline):
        raise NotPortableError(f"a {type(pipeline).__name__} where a pipeline was due")
    if checked:
        origin.check_code()
    return pipeline
