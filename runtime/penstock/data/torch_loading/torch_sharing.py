"""Loaders of PyTorch programs that share their batches with other jobs of a group.

What shuffles is shared: a `RandomSampler` without replacement, or a `DistributedSampler`, whose
ranks divide the tiles. Everything else, and whatever is found to differ from what the others have,
is served as without a group, and one line of the log says why; of several ranks such a one keeps
the group's order.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from penstock.base.enums import Guarantee, ShareJoin, ShareOrder
from penstock.data.complaints import Complaints
from penstock.data.consuming.batch_stream import BadSample, BatchStream, Source, StreamOptions
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.shared_stream import SharedStream
from penstock.data.errors import DataError
from penstock.data.ledger import derive_seed
from penstock.data.local.workers import LocalOptions
from penstock.data.pipeline import BatchId, PackedPipeline, Pipeline
from penstock.data.protocol import ShareOptions
from penstock.data.sharing.parts import parts_of
from penstock.data.sharing.pipeline import SharedPipeline, shared_pipeline, tile_of
from penstock.data.sharing.tiles import Tiles
from penstock.data.torch_loading.free_batches import FreeBatches, division_of, rank_of, ranks_of
from penstock.data.torch_loading.sameness import Finding, NoProofError, compare
from penstock.data.torch_loading.torch_buckets import NOT_SHUFFLED, BucketBatches, why_not_bucketed
from penstock.data.torch_loading.torch_common import CommonBatches, CommonBuckets
from penstock.data.window.free_share import FreeShare
from penstock.data.window.free_window import FreeOptions, FreeWindow

MIN_BATCHES: Final = 2
MAX_PROVEN: Final = 1000


class DiffersError(DataError):
    """What data workers make of a loader's samples is something else: they are not to make any."""


_proven: Final[dict[bytes, Finding]] = {}
"""What was found of pipelines that were compared, by digest."""


@dataclass(frozen=True)
class EpochOrder:
    """The order of an epoch that is not of the program's own sampler.

    With several ranks it follows from what the job says, and from the loader, alone: who makes the
    batches, and whether anybody can, is not the same for all of them.

    Attributes:
        kind: whether it is common to the group's programs.
        seed: of a common one.
    """

    kind: ShareOrder
    seed: int = 0

    @classmethod
    def of_group(cls, asked: ShareOptions) -> EpochOrder:
        """That of a group."""
        if asked.order is ShareOrder.FREE:
            return cls(asked.order)
        digest = hashlib.blake2b(asked.group.encode(), digest_size=8).digest()
        return cls(asked.order, int.from_bytes(digest, "little") >> 1)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"kind": str(self.kind), "seed": self.seed}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> EpochOrder:
        """What `state` has given.

        Raises:
            ValueError: there is no such order.
        """
        return cls(ShareOrder(state["kind"]), int(state["seed"]))


@dataclass(frozen=True)
class Begun:
    """An epoch that is gone on with. ``order``: in which it was begun; None: of its own sampler."""

    order: EpochOrder | None


def why_own_order(loader: Any) -> str | None:
    """Why a loader's order is its own sampler's; None: a group's may be in its place.

    The same on all ranks of a program, as the loader is.
    """
    problem = why_not_bucketed(loader)
    if problem is not None:
        return problem
    size, batch = len(loader.dataset), loader.batch_sampler.batch_size
    if tile_of(size, batch) is None:
        return f"batches of {batch} of {size} samples are too many: make batches of a multiple of 8"
    sampler = loader.batch_sampler.sampler
    ranks = getattr(sampler, "num_replicas", 1)
    if size < MIN_BATCHES * batch * ranks:
        return f"{size} samples are less than {MIN_BATCHES} batches for each rank"
    if ranks > 1:
        even = size // ranks if sampler.drop_last else -(-size // ranks)
        if sampler.total_size != even * ranks:
            return f"its DistributedSampler was made when the dataset had not {size} samples"
    return None


@dataclass(frozen=True)
class SharedLoader:
    """A loader whose epoch comes in the order of a group.

    Attributes:
        order: in which it comes.
        tiles: of its dataset.
        shared: what is shared with others; None: nothing is. One rank of several then has its part
            of the group's order all the same: in another order, it and the other ranks would lose
            samples together.
        packed: that, for data workers.
        consumer: who takes its batches; None: no data worker makes any.
        options: of the group, if there is one now.
    """

    order: EpochOrder
    tiles: Tiles
    shared: SharedPipeline | None
    packed: PackedPipeline | None
    consumer: Consumer | None
    options: ShareOptions | None

    @property
    def source(self) -> Source:
        """What makes its batches, where they are shared."""
        shared, packed = self.shared, self.packed
        assert shared is not None, "it is shared"
        assert packed is not None, "it is shared"
        return Source(shared.pipeline, b"", lambda: packed, at_once=True)

    @property
    def is_free(self) -> bool:
        """Whether each program of the group has an order of its own."""
        return self.order.kind is ShareOrder.FREE

    def seed(self, epoch: int) -> int:
        """Of an epoch in the common order."""
        return derive_seed(self.order.seed, epoch)

    def free_batches(self, loader: Any, seed: int, tiles: dict[str, Any] | None) -> FreeBatches:
        """What makes the indices of an epoch in free order; ``tiles``: what was had of it."""
        return FreeBatches(self.tiles, loader.batch_sampler, steps_of(loader), seed, tiles)

    def batches(
        self, loader: Any, arranged: Any, epoch: int, first: int
    ) -> CommonBatches | CommonBuckets:
        """What makes the indices of an epoch in the common order.

        ``arranged``: what would make them alone; by length, if it does so. ``first``: the sample of
        the order with which it begins, if that is not by length.
        """
        given, size, seed = loader.batch_sampler, len(loader.dataset), self.seed(0)
        if isinstance(arranged, BucketBatches):
            return CommonBuckets(given, size, arranged.buckets, seed, epoch)
        return CommonBatches(given, size, seed, epoch, first)

    def front(self, loader: Any) -> tuple[int, int]:
        """Epoch and sample of the order where a program that comes now is to begin.

        One of several ranks begins at the beginning: each would hear of another front, and ranks of
        different epochs would lose samples together.
        """
        asked, shared = self.options, self.shared
        if self.consumer is None or asked is None or shared is None or ranks_of(loader) > 1:
            return 0, 0
        if asked.join is ShareJoin.EPOCH:
            return 0, 0
        return self.consumer.fronts.get(shared.key.hex(), (0, 0))

    def follow(self, stream: BatchStream, batches: Any, epoch: int) -> None:
        """Tell the others how far a stream is."""
        if self.consumer is None or self.shared is None:
            return
        followed = weakref.ref(stream)

        def position() -> tuple[int, int] | None:
            one = followed()
            if one is None or not isinstance(batches, CommonBatches):
                return None
            step = batches.first + one.position
            if step > len(batches):
                return None  # it has what it missed now
            return epoch, step * batches.step_samples

        self.consumer.positions[self.shared.key.hex()] = position

    def begin(
        self,
        loader: Any,
        batch: BatchId,
        seed: int,
        options: StreamOptions,
        quarantine: list[BadSample],
        tiles: dict[str, Any] | None,
    ) -> SharedStream:
        """An epoch; ``tiles``: what the program has had of it, where it goes on with one."""
        shared, given = self.shared, loader.batch_sampler
        assert shared is not None, "it is shared"
        division = division_of(self.tiles, given)
        window = FreeWindow(
            division.ledger(shared.tiles, tiles),
            1,
            FreeOptions(
                batch_tiles=given.batch_size // shared.tile,
                divide=functools.partial(_parts, shared.tiles, shared.key),
                short=shared.short if division.own is None else None,
                keeps_rest=not given.drop_last,
                more=bool(division.rest),
            ),
        )
        free = FreeShare(batch.group, window, shared.window_bytes)
        return SharedStream(
            self.consumer,
            self.source,
            seed,
            batch._replace(step=0),
            iter(()),
            options,
            quarantine,
            shared=shared,
            rest=division.rest,
            free=free,
        )


def saved_place(
    order: EpochOrder | None, start: Any, tiles: dict[str, Any] | None, loader: Any
) -> dict[str, Any]:
    """Where an epoch under way is, and in which order, for a loader's state."""
    said = None if order is None else order.state()
    ranks = None if order is None else [rank_of(loader), ranks_of(loader)]
    return {"start": start, "tiles": tiles, "order": said, "ranks": ranks}


def check_ranks(state: dict[str, Any], loader: Any) -> None:
    """Raise ValueError for an epoch in free order that another rank was in."""
    told = state.get("ranks")
    if state.get("tiles") is None or told is None:
        return
    here = [rank_of(loader), ranks_of(loader)]
    if list(told) != here:
        raise ValueError(
            f"ranks: the state is of rank {told[0]} of {told[1]}, this is rank {here[0]} of "
            f"{here[1]}: in the free order of a share group each rank saves a state of its own, "
            "and as many go on with it"
        )


def begun_in(resume: dict[str, Any]) -> Begun | None:
    """In which order an epoch was begun that is gone on with; None: a new one begins."""
    if not resume:
        return None
    said = resume.get("order")
    return Begun(None if said is None else EpochOrder.restore(said))


def _parts(tiles: int, key: bytes, names: Any) -> dict[str, NDArray[np.bool_]]:
    return parts_of(tiles, names, key)


def steps_of(loader: Any) -> int:
    """Batches of an epoch."""
    given = loader.batch_sampler
    if ranks_of(loader) > 1:
        steps: int = len(given)
        return steps
    whole, rest = divmod(len(loader.dataset), int(given.batch_size))
    return whole + (rest > 0 and not given.drop_last)


def shared_loader(
    loader: Any,
    consumer: Consumer | None,
    pipeline: Callable[[], Pipeline],
    local: LocalOptions,
    guarantee: Guarantee,
    complaints: Complaints,
    *,
    begun: Begun | None = None,
    stays_here: bool = False,
) -> SharedLoader | None:
    """A loader as it has a group's order; None where it has its own: one line says why.

    A rank of several that cannot be served has its part of the group's order all the same. So has
    whoever goes on with an epoch that was ``begun`` in it. ``stays_here``: no data worker is to
    make its batches.

    Raises:
        DiffersError: data workers are not to make its batches at all; one line says why.
        ValueError: the epoch that was begun cannot be gone on with.
    """
    asked = None if consumer is None else consumer.options().share
    groups = None if asked is None else EpochOrder.of_group(asked)
    order = groups if begun is None else begun.order
    if order is None:
        return None
    dataset = type(loader.dataset).__qualname__
    subject = f"a loader of {dataset}"
    text = "is not shared" if asked is None else f"does not share with group {asked.group}"
    problem = why_own_order(loader)
    if problem is not None:
        if begun is not None:
            raise ValueError(
                f"order: the state's epoch is in the order of a share group: {problem}"
            )
        if problem != NOT_SHUFFLED:
            complaints.add(subject, f"{text}: {problem}")
        return None
    tile = tile_of(len(loader.dataset), loader.batch_sampler.batch_size)
    assert tile is not None, "see why_own_order"
    alone = SharedLoader(order, Tiles(len(loader.dataset), tile), None, None, consumer, asked)
    keeps_order = begun is not None or ranks_of(loader) > 1
    if stays_here:
        return replace(alone, consumer=None) if keeps_order else None
    if asked is None or consumer is None or order != groups:
        return alone  # and the next epoch is the group's
    try:
        if not consumer.expects_workers:
            raise NoProofError("the group has no data worker")
        shared, packed = shared_pipeline(
            pipeline(),
            len(loader.dataset),
            tile,
            consumer.token,
            common=asked.order is ShareOrder.COMMON,
            at_most_once=guarantee is Guarantee.AT_MOST_ONCE,
            window_bytes=asked.window_bytes,
        )
        _compare(shared, packed, consumer, local)
    except DiffersError as error:
        complaints.add(subject, f"{text}, and is served by no data worker: {error}")
        if not keeps_order:
            raise
        return replace(alone, consumer=None)
    except DataError as error:
        complaints.add(subject, f"{text}: {error}")
        return alone if keeps_order else None
    return replace(alone, shared=shared, packed=packed)


def _compare(
    shared: SharedPipeline, packed: PackedPipeline, consumer: Consumer, local: LocalOptions
) -> None:
    """Have a tile made here and there, once, and only those asked who make the same.

    Raises:
        DiffersError: they are not the same.
        NoProofError: that cannot be told; another time, perhaps.
    """
    if packed.digest in _proven:
        found = _proven[packed.digest]
    else:
        found = compare(shared, packed, consumer, local)
        if len(_proven) < MAX_PROVEN:
            _proven[packed.digest] = found
    if found.difference is not None:
        raise DiffersError(f"what these make is something else: {found.difference}")
    consumer.pool.makers.require(packed.digest, found.proof)


def draw_as_alone(loader: Any) -> int:
    """Draw what PyTorch draws when an epoch begins; gives the base seed."""
    drawn = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator))
    next(iter(loader.batch_sampler), None)
    return drawn
