"""Memory for batches: used again when it is free, and only then."""

from __future__ import annotations

import fcntl
import gc
import mmap
import os

import numpy as np
import psutil
import pytest

from penstock.data.errors import FrameError
from penstock.data.transport.blocks import (
    IDLE_LENDS,
    KEPT_BLOCKS,
    Pool,
    SharedPool,
    create_shared,
    map_shared,
)


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
    pool = SharedPool()
    block = pool.lend(100_000)
    assert block is not None
    there = map_shared(os.dup(block.descriptor), block.size)
    there[:5] = b"hello"
    assert bytes(pool.root(block)[:5]) == b"hello"
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(block.descriptor, 10)
    with pytest.raises(OSError, match="not permitted"):
        fcntl.fcntl(block.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    there.close()


def test_a_shared_block_is_lent_again_when_neither_the_writer_nor_the_program_has_it() -> None:
    pool = SharedPool()
    first, second = pool.lend(100), pool.lend(100)
    assert first is not None
    assert first is not second
    root = pool.root(first)
    assert pool.lend(100) not in (first, second)
    view = root[10:20]
    del root
    gc.collect()
    assert pool.lend(100) is not first
    del view
    gc.collect()
    assert pool.lend(100) is first
    assert second is not None
    pool.give_back(second)
    assert pool.lend(50) is second


def test_shared_blocks_of_another_size_are_let_go() -> None:
    pool = SharedPool()
    small = pool.lend(100)
    assert small is not None
    pool.give_back(small)
    large = pool.lend(64 << 20)
    assert large is not None
    assert list(pool.blocks) == [large.number]
    assert small.descriptor == -1
    pool.give_back(large)
    assert pool.lend(1 << 20) is not large
    assert large.number not in pool.blocks


def test_a_block_that_is_dropped_under_a_batch_is_never_lent_again() -> None:
    pool = SharedPool()
    block = pool.lend(100)
    assert block is not None
    root = pool.root(block)
    pool.drop(block)
    root[0] = 7  # the memory is there as long as somebody refers to it
    del root
    gc.collect()
    assert pool.lend(100) is not block


def test_what_is_kept_of_shared_blocks_is_bounded() -> None:
    pool = SharedPool()
    blocks = [pool.lend(1 << 20) for _ in range(10)]
    for block in blocks:
        assert block is not None
        pool.give_back(block)
    assert pool.held_bytes == 10 << 20
    pool.trim(4 << 20)
    assert pool.held_bytes == 4 << 20


def test_blocks_that_only_a_burst_has_needed_are_let_go() -> None:
    pool = SharedPool()
    burst = [pool.lend(1 << 20) for _ in range(10)]
    for block in burst:
        assert block is not None
        pool.give_back(block)
    for _ in range(2 * IDLE_LENDS):
        two = [pool.lend(1 << 20) for _ in range(2)]
        for block in two:
            assert block is not None
            pool.give_back(block)
    assert pool.held_bytes == 2 << 20
    assert pool.dropped == 8


def test_a_block_of_the_writers_own_is_adopted_if_nobody_can_shrink_it() -> None:
    pool = SharedPool()
    descriptor = create_shared(100_000)
    assert pool.adopt(descriptor, 100_000).size == 100_000
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 100_000)
    with pytest.raises(FrameError, match="not sealed"):
        pool.adopt(unsealed, 100_000)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(unsealed)
    short = create_shared(1000)
    with pytest.raises(FrameError, match="smaller than claimed"):
        pool.adopt(short, 100_000)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(short)


def test_a_block_that_is_smaller_than_claimed_is_refused() -> None:
    descriptor = os.memfd_create("small")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    with pytest.raises(ValueError, match="size"):
        map_shared(descriptor, 10 * mmap.PAGESIZE)


def test_a_pool_that_is_closed_keeps_memory_only_for_what_lies_in_it() -> None:
    before = psutil.Process().num_fds()
    pool = SharedPool()
    blocks = [pool.lend(1 << 20) for _ in range(3)]
    assert all(block is not None for block in blocks)
    roots = [pool.root(block) for block in blocks if block is not None]
    roots[0][:3] = 7
    pool.close()
    assert roots[0][:3].tolist() == [7, 7, 7]
    del blocks, roots
    gc.collect()
    assert psutil.Process().num_fds() == before, "the pool itself is still there"
    assert not pool.blocks
