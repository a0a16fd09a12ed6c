"""Which samples the ranks of a program have of an epoch, whoever makes its batches: pure."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from torch.utils import data as torch_data

from penstock.data.ledger import SnapshotError, TileLedger
from penstock.data.sharing.tiles import Tiles
from penstock.data.torch_loading.free_batches import FreeBatches, division_of
from penstock.data.torch_loading.torch_sharing import steps_of


def loader(size: int, ranks: int, rank: int, *, drop_last: bool = False, even: bool = False) -> Any:
    """One rank's, with batches of 16; ``even``: the sampler leaves samples out."""
    samples: Any = range(size)
    sampler: Any = torch_data.DistributedSampler(samples, ranks, rank, drop_last=even)
    return torch_data.DataLoader(samples, 16, sampler=sampler, drop_last=drop_last)


def batches(own: Any, seed: int = 3, had: dict[str, Any] | None = None) -> FreeBatches:
    tiles = Tiles(len(own.dataset), 8)
    return FreeBatches(tiles, own.batch_sampler, steps_of(own), seed, had)


def test_tiles_are_of_the_size_alone() -> None:
    tiles = Tiles(203, 8)
    assert sorted(tiles.indices(range(tiles.count))) == list(range(203))
    assert len(tiles.samples(25)) == 3
    assert tiles.short == 25
    assert Tiles(203, 8).samples(7) == tiles.samples(7) != Tiles(204, 8).samples(7)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("size", [192, 193, 203, 400])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("even", [False, True])
def test_ranks_have_all_samples_together_in_as_many_batches_as_without(
    size: int, ranks: int, drop_last: bool, even: bool
) -> None:
    found, lengths = [], set()
    for rank in range(ranks):
        own = loader(size, ranks, rank, drop_last=drop_last, even=even)
        made = list(batches(own, seed=rank))
        assert len(made) == len(own) == len(batches(own))
        assert {len(one) for one in made[:-1]} == {16}
        lengths.add(len(made[-1]))
        found += list(itertools.chain(*made))
    assert len(lengths) == 1, "of the last batches"
    if drop_last:
        assert len(found) == len(set(found)) > size - 16 * ranks
    elif even and ranks > 1:
        assert len(found) == len(set(found)) == size // ranks * ranks
    else:
        assert set(found) == set(range(size))
        assert len(found) - size < ranks


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("taken", [0, 1, 5, 6, 7])
def test_what_was_had_does_not_come_again(ranks: int, taken: int) -> None:
    own = loader(203, ranks, 0)
    whole = sorted(itertools.chain(*batches(own)))
    first = batches(own, seed=1)
    before = list(itertools.islice(first, taken))
    had = first.snapshot(taken)
    again = batches(own, seed=2, had=had)
    assert again.snapshot(0) == had
    if taken < len(own):  # the rest of the samples is of no tiles: it is the last of the batches
        assert sorted(itertools.chain(*before, *again)) == whole


def test_another_number_of_tiles_is_refused() -> None:
    had = batches(loader(203, 2, 0)).snapshot(2)
    with pytest.raises(SnapshotError, match="tiles: the snapshot has 26, the epoch has 27"):
        batches(loader(211, 2, 0), had=had)


def test_a_ledger_of_the_same_tiles_goes_on() -> None:
    own = loader(203, 2, 1)
    first = batches(own)
    had = first.snapshot(3)
    lacks = TileLedger.restore(26, had, division_of(Tiles(203, 8), own.batch_sampler).own).lacks
    left = set(Tiles(203, 8).indices(tile for tile in range(26) if lacks[tile]))
    rest = set(division_of(Tiles(203, 8), own.batch_sampler).rest)
    assert left | rest == set(itertools.chain(*list(first)[3:]))
