"""Memory that batches arrive in, used again as soon as the program has dropped the batch.

Fresh memory for every batch costs a page fault for each 4 KiB, which is dearer than the copy. So a
block returns to its pool by itself when the last array or tensor in it is gone; who keeps a batch
keeps its block, and nothing is ever overwritten under the program's hands.

A shared block is the same with its memory in a memfd that the data worker maps too. A memfd has no
name: nothing is left in /dev/shm however a process ends. It is sealed, so that the other end cannot
shrink it away under the reader.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref
from collections import deque
from typing import Any, Final

import numpy as np

SMALL_BYTES: Final = 64 << 10
KEPT_BLOCKS: Final = 16
KEPT_BYTES: Final = 512 << 20

Root = np.ndarray[Any, np.dtype[np.uint8]]


class Pool:
    """Private memory for batches that come over a network."""

    def __init__(self) -> None:
        self._free: deque[mmap.mmap] = deque()  # appended to by the collector, in any thread
        self._lent: dict[int, weakref.ref[Root]] = {}

    def allocate(self, size: int) -> Root:
        """Writable bytes, at least ``size`` of them; back in the pool when nobody refers to them.

        Not for several threads at once.
        """
        if size < SMALL_BYTES:
            return np.empty(size, np.uint8)
        block = self._fitting(size) or _private(_rounded(size))
        root: Root = np.frombuffer(block, np.uint8)
        key = id(root)

        def back(_: object, free: deque[mmap.mmap] = self._free) -> None:
            self._lent.pop(key, None)
            free.append(block)

        self._lent[key] = weakref.ref(root, back)
        return root

    def _fitting(self, size: int) -> mmap.mmap | None:
        """A free block of the right size; what is beyond the pool's bounds is let go."""
        found, kept = None, 0
        for _ in range(len(self._free)):
            block = self._free.popleft()
            if found is None and size <= len(block) <= 4 * _rounded(size):
                found = block
            elif kept + len(block) <= KEPT_BYTES and len(self._free) < KEPT_BLOCKS:
                kept += len(block)
                self._free.append(block)
        return found


def _rounded(size: int) -> int:
    unit = 1 << 20 if size > 1 << 20 else SMALL_BYTES
    return -(-size // unit) * unit


def _private(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


class SharedBlock:
    """A block that two processes on one machine have mapped; the reader makes it."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = _rounded(size)
        self.descriptor = os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self._memory = mmap.mmap(self.descriptor, self.size)
        self._root: weakref.ref[Root] | None = None
        self.requested = False  # the writer may write to it

    @property
    def free(self) -> bool:
        """Whether neither the writer nor the program has a claim on it."""
        return not self.requested and (self._root is None or self._root() is None)

    def root(self) -> Root:
        """The bytes, for one batch."""
        root: Root = np.frombuffer(self._memory, np.uint8)
        self._root = weakref.ref(root)
        return root

    def sent(self) -> None:
        """The other end has the descriptor: this one needs only the mapping."""
        os.close(self.descriptor)
        self.descriptor = -1


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Map a block that the other end made, and close the descriptor.

    Raises:
        ValueError: it is smaller than claimed.
    """
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
