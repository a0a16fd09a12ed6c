"""Memory for batches: used again when it is free, and only then."""

from __future__ import annotations

import fcntl
import gc
import mmap
import os

import numpy as np
import pytest

from penstock.data.transport.blocks import KEPT_BLOCKS, Pool, SharedBlock, map_shared


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_block_comes_back_when_the_last_view_of_it_is_gone() -> None:
    pool = Pool()
    root = pool.allocate(1 << 20)
    place, view = address(root), root[10:20].view(np.int16)
    del root
    gc.collect()
    other = pool.allocate(1 << 20)
    assert address(other) != place
    del view
    gc.collect()
    assert address(pool.allocate(1 << 20)) == place


def test_what_is_kept_for_later_is_bounded() -> None:
    pool = Pool()
    roots = [pool.allocate(1 << 20) for _ in range(3 * KEPT_BLOCKS)]
    del roots
    gc.collect()
    taken = pool.allocate(1 << 20)
    assert len(pool._free) <= KEPT_BLOCKS
    assert taken.size == 1 << 20


def test_a_block_that_is_far_too_large_is_not_used() -> None:
    pool = Pool()
    large = pool.allocate(64 << 20)
    place = address(large)
    del large
    gc.collect()
    assert address(pool.allocate(1 << 20)) != place


def test_both_ends_see_the_same_memory_and_nobody_can_shrink_it() -> None:
    block = SharedBlock(0, 100_000)
    there = map_shared(os.dup(block.descriptor), block.size)
    there[:5] = b"hello"
    assert bytes(block.root()[:5]) == b"hello"
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(block.descriptor, 10)
    with pytest.raises(OSError, match="not permitted"):
        fcntl.fcntl(block.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    there.close()
    block.sent()


def test_a_block_is_free_when_neither_the_writer_nor_the_program_has_it() -> None:
    block = SharedBlock(0, 100)
    assert block.free
    block.requested = True
    assert not block.free
    root = block.root()
    block.requested = False
    assert not block.free
    del root
    assert block.free
    block.sent()


def test_a_block_that_is_smaller_than_claimed_is_refused() -> None:
    descriptor = os.memfd_create("small")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    with pytest.raises(ValueError, match="size"):
        map_shared(descriptor, 10 * mmap.PAGESIZE)
