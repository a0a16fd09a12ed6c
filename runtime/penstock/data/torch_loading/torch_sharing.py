"""Loaders of PyTorch programs that share their batches with other jobs of a group.

What shuffles is shared: a `RandomSampler` without replacement, or a `DistributedSampler`, whose
ranks divide the tiles. Everything else, and whatever is found to differ from what the others have,
is served as without a group, and one line of the log says why.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee, ShareJoin, ShareOrder
from penstock.data.complaints import Complaints
from penstock.data.consuming.batch_stream import BadSample, BatchStream, Source, StreamOptions
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.shared_stream import SharedStream
from penstock.data.errors import DataError, NotPortableError
from penstock.data.ledger import Permutation, TileLedger, derive_seed
from penstock.data.local.workers import LocalOptions
from penstock.data.pipeline import BatchId, PackedPipeline, Pipeline
from penstock.data.protocol import ShareOptions
from penstock.data.sharing.parts import parts_of
from penstock.data.sharing.pipeline import SharedPipeline, shared_pipeline, tile_of
from penstock.data.torch_loading.sameness import Finding, compare
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
class Division:
    """How one rank of a program has its part of an epoch.

    Attributes:
        own: its tiles, of all: bool.
        rest: the samples of a last batch that is of no tiles.
    """

    own: NDArray[np.bool_] | None
    rest: list[int]


def division_of(shared: SharedPipeline, batch_sampler: torch_data.BatchSampler) -> Division:
    """What a rank has: tiles for as many batches as all ranks have, and its part of what is left.

    Ranks have equally many batches, and samples of the rest but for those that a
    `DistributedSampler` repeats, too, so that each has as many.
    """
    sampler: Any = batch_sampler.sampler
    if type(sampler) is not torch_data.DistributedSampler or sampler.num_replicas == 1:
        if not batch_sampler.drop_last or shared.short is None:
            return Division(None, [])
        own = np.ones(shared.tiles, np.bool_)
        own[shared.short] = False  # it makes no whole batch
        return Division(own, [])
    ranks, rank = sampler.num_replicas, sampler.rank
    each = batch_sampler.batch_size // shared.tile
    whole = shared.tiles - (shared.short is not None)
    mixed = Permutation(max(1, whole), derive_seed(sampler.seed, sampler.epoch)).take(0, whole)
    steps = whole // (ranks * each)
    taken = mixed[: steps * ranks * each]
    own = np.zeros(shared.tiles, np.bool_)
    own[taken[rank::ranks]] = True
    left = [*mixed[len(taken) :].tolist(), *([] if shared.short is None else [shared.short])]
    samples = shared.indices(left)
    if not samples:
        return Division(own, [])
    count = -(-len(samples) // ranks)
    padded = samples + samples[: count * ranks - len(samples)]
    while len(padded) < count * ranks:
        padded += samples[: count * ranks - len(padded)]
    rest = padded[rank::ranks]
    return Division(
        own, rest if not batch_sampler.drop_last or count == batch_sampler.batch_size else []
    )


def why_not_shared(loader: Any, consumer: Consumer) -> str | None:
    """Why a loader's batches are its own; None where they may be shared."""
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
    if not consumer.expects_workers:
        return "the group has no data worker"
    return None


@dataclass(frozen=True)
class SharedLoader:
    """A loader that was found to be one that shares.

    Attributes:
        shared: what is shared.
        packed: that for data workers; None: they are not to make it for this loader. One rank of
            several then has its part of the group's order all the same: in another order, it and
            the other ranks would lose samples together.
        consumer: who takes its batches; None: no data worker makes any.
        options: of the group.
    """

    shared: SharedPipeline
    packed: PackedPipeline | None
    consumer: Consumer | None
    options: ShareOptions

    @property
    def source(self) -> Source:
        """What makes its batches."""
        return Source(self.shared.pipeline, b"", self._pack, at_once=True)

    def _pack(self) -> PackedPipeline:
        if self.packed is None:
            raise NotPortableError("its samples are not shared, and their order is the group's")
        return self.packed

    def seed(self, epoch: int) -> int:
        """Of an epoch in the common order."""
        return derive_seed(int.from_bytes(self.shared.key[8:16], "little") >> 1, epoch)

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
        if self.consumer is None or self.options.join is ShareJoin.EPOCH or ranks_of(loader) > 1:
            return 0, 0
        return self.consumer.fronts.get(self.shared.key.hex(), (0, 0))

    def follow(self, stream: BatchStream, batches: Any, epoch: int) -> None:
        """Tell the others how far a stream is."""
        if self.consumer is None or self.packed is None:
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
        division = division_of(shared, given)
        if tiles is None:
            ledger = TileLedger(shared.tiles, division.own)
        else:
            ledger = TileLedger.restore(shared.tiles, tiles, division.own)
        window = FreeWindow(
            ledger,
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


def _parts(tiles: int, key: bytes, names: Any) -> dict[str, NDArray[np.bool_]]:
    return parts_of(tiles, names, key)


def ranks_of(loader: Any) -> int:
    """Processes that divide a loader's samples."""
    sampler: Any = loader.batch_sampler.sampler
    return sampler.num_replicas if type(sampler) is torch_data.DistributedSampler else 1


def steps_of(shared: SharedPipeline, loader: Any) -> int:
    """Batches of an epoch."""
    given = loader.batch_sampler
    if ranks_of(loader) > 1:
        steps: int = len(given)
        return steps
    whole, rest = divmod(shared.size, int(given.batch_size))
    return whole + (rest > 0 and not given.drop_last)


def shared_loader(
    loader: Any,
    consumer: Consumer | None,
    pipeline: Callable[[], Pipeline],
    local: LocalOptions,
    guarantee: Guarantee,
    complaints: Complaints,
) -> SharedLoader | None:
    """A loader as it shares; None where it does not: one line says why.

    A rank of several that cannot be served has its part of the group's order all the same.

    Raises:
        DiffersError: data workers are not to make its batches at all; one line says why.
    """
    asked = None if consumer is None else consumer.options().share
    if consumer is None or asked is None:
        return None
    dataset = type(loader.dataset).__qualname__
    subject, text = f"a loader of {dataset}", f"does not share with group {asked.group}"
    shared, problem = None, why_not_shared(loader, consumer)
    if problem is None:
        try:
            size, batch = len(loader.dataset), loader.batch_sampler.batch_size
            tile = tile_of(size, batch)
            assert tile is not None, "see why_not_shared"
            shared, packed = shared_pipeline(
                pipeline(),
                size,
                tile,
                consumer.token,
                common=asked.order is ShareOrder.COMMON,
                at_most_once=guarantee is Guarantee.AT_MOST_ONCE,
                window_bytes=asked.window_bytes,
            )
            _compare(shared, packed, consumer, local)
        except DiffersError as error:
            complaints.add(subject, f"{text}, and is served by no data worker: {error}")
            if shared is None or ranks_of(loader) == 1:
                raise
            return SharedLoader(shared, None, None, asked)
        except DataError as error:
            problem = str(error)
        else:
            return SharedLoader(shared, packed, consumer, asked)
    if problem != NOT_SHUFFLED:
        complaints.add(subject, f"{text}: {problem}")
    if shared is None or ranks_of(loader) == 1:
        return None
    return SharedLoader(shared, None, consumer, asked)


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
