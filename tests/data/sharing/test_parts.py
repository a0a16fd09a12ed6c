"""Which data worker makes which tiles: each tile one's, evenly, and few move."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.sharing.parts import MAX_BLOCK, block_of, parts_of

NAMES = st.sets(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=9)


@given(st.integers(1, 5000), NAMES, st.binary(min_size=1, max_size=40))
def test_each_tile_is_one_data_workers(tiles: int, names: set[str], key: bytes) -> None:
    parts = parts_of(tiles, names, key)
    assert set(parts) == names
    assert (sum(part.astype(int) for part in parts.values()) == np.ones(tiles)).all()
    block = block_of(tiles, len(names))
    sizes = [int(part.sum()) for part in parts.values()]
    blocks = math.ceil(tiles / block)
    most = math.ceil(blocks / len(names))
    assert max(sizes) <= most * block
    for part in parts.values():  # whole blocks, but for the last of all
        starts = part[: tiles - tiles % block].reshape(-1, block)
        assert (starts.all(axis=1) == starts.any(axis=1)).all()


@given(NAMES, st.binary(min_size=1, max_size=40), st.randoms())
def test_the_order_of_names_is_of_no_account(names: set[str], key: bytes, chance: object) -> None:
    mixed = sorted(names, key=lambda name: hash((name, chance)))
    one, other = parts_of(999, names, key), parts_of(999, mixed, key)
    assert all((one[name] == other[name]).all() for name in names)


def test_who_leaves_moves_few_tiles_that_are_not_its_own() -> None:
    names = [f"data-worker-{number}" for number in range(8)]
    before, after = parts_of(100_000, names, b"k"), parts_of(100_000, names[:-1], b"k")
    stayed = sum(int((before[name] & after[name]).sum()) for name in names[:-1])
    assert stayed / 100_000 > 0.8 * 7 / 8


def test_several_loaders_are_divided_in_different_ways() -> None:
    one, other = parts_of(9999, ["a", "b"], b"1"), parts_of(9999, ["a", "b"], b"2")
    assert 0.3 < float((one["a"] == other["a"]).mean()) < 0.7


def test_blocks_of_small_datasets_are_smaller() -> None:
    assert block_of(100_000, 4) == MAX_BLOCK
    assert block_of(60, 4) == 1
