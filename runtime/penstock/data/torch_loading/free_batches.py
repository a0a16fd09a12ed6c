"""A rank's part of an epoch in free order, and its batches where no data worker makes them for all.

What a rank has of an epoch follows from the sizes and the program's sampler, not from who makes the
batches: ranks of which one is served by data workers, and another is not, have every sample once
together. Tiles are as those of `penstock.data.consuming.shared_stream`: an epoch that was begun
there may be ended here, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils import data as torch_data

from penstock.data.ledger import Permutation, TileLedger, derive_seed
from penstock.data.sharing.tiles import Tiles


def ranks_of(loader: Any) -> int:
    """Processes that divide a loader's samples."""
    sampler: Any = loader.batch_sampler.sampler
    return sampler.num_replicas if type(sampler) is torch_data.DistributedSampler else 1


def rank_of(loader: Any) -> int:
    """Which of them this one is."""
    return int(loader.batch_sampler.sampler.rank) if ranks_of(loader) > 1 else 0


@dataclass(frozen=True)
class Division:
    """How one rank of a program has its part of an epoch.

    Attributes:
        own: its tiles, of all: bool.
        rest: the samples of a last batch that is of no tiles.
    """

    own: NDArray[np.bool_] | None
    rest: list[int]

    def ledger(self, count: int, had: dict[str, Any] | None) -> TileLedger:
        """Of its tiles, ``count`` in all; ``had``: what it has had, where it goes on.

        Raises:
            SnapshotError: that is of another number of tiles.
        """
        if had is None:
            return TileLedger(count, self.own)
        return TileLedger.restore(count, had, self.own)


def division_of(tiles: Tiles, batch_sampler: torch_data.BatchSampler) -> Division:
    """What a rank has: tiles for as many batches as all ranks have, and its part of what is left.

    Ranks have equally many batches, and samples of the rest but for those that a
    `DistributedSampler` repeats, or leaves out, too, so that each has as many.
    """
    sampler: Any = batch_sampler.sampler
    if type(sampler) is not torch_data.DistributedSampler or sampler.num_replicas == 1:
        if not batch_sampler.drop_last or tiles.short is None:
            return Division(None, [])
        own = np.ones(tiles.count, np.bool_)
        own[tiles.short] = False  # it makes no whole batch
        return Division(own, [])
    ranks, rank = sampler.num_replicas, sampler.rank
    each = batch_sampler.batch_size // tiles.tile
    whole = tiles.count - (tiles.short is not None)
    mixed = Permutation(max(1, whole), derive_seed(sampler.seed, sampler.epoch)).take(0, whole)
    steps = whole // (ranks * each)
    taken = mixed[: steps * ranks * each]
    own = np.zeros(tiles.count, np.bool_)
    own[taken[rank::ranks]] = True
    left = [*mixed[len(taken) :].tolist(), *([] if tiles.short is None else [tiles.short])]
    samples = tiles.indices(left)
    if sampler.drop_last:
        samples = samples[: len(samples) // ranks * ranks]
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


class FreeBatches:
    """A batch sampler: what a rank lacks of an epoch in free order, as lists of indices."""

    def __init__(
        self,
        tiles: Tiles,
        given: torch_data.BatchSampler,
        steps: int,
        seed: int,
        had: dict[str, Any] | None,
    ) -> None:
        """``given``: the loader's; ``steps``: of the epoch; ``had``: of it, where it goes on.

        Raises:
            SnapshotError: what it has had is of another number of tiles.
        """
        division = division_of(tiles, given)
        self._tiles, self._steps, self._rest = tiles, steps, division.rest
        self._ledger = division.ledger(tiles.count, had)
        lacks = np.flatnonzero(self._ledger.lacks)
        short = tiles.short is not None and bool(self._ledger.lacks[tiles.short])
        whole = lacks[:-1] if short else lacks  # the short one is the last of all
        if len(whole):
            whole = whole[Permutation(len(whole), seed).take(0, len(whole))]
        order = np.append(whole, lacks[-1:]) if short else whole
        each = given.batch_size // tiles.tile
        parts = [order[start : start + each] for start in range(0, len(order), each)]
        self._parts = [one for one in parts if len(one) == each or not given.drop_last]
        self._had = 0  # of these

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[list[int]]:
        for part in self._parts:
            yield self._tiles.indices(part)
        if self._rest:
            yield self._rest

    def snapshot(self, batches: int) -> dict[str, Any]:
        """What has been had of the epoch after so many batches, for a checkpoint."""
        for part in self._parts[self._had : batches]:
            for tile in part.tolist():
                self._ledger.arrive(tile)
                self._ledger.consume(tile)
        self._had = max(self._had, batches)
        return self._ledger.snapshot()
