"""A worker's allocator as that of a program that makes its batches itself, for some batches.

Such a program frees each batch, and glibc keeps freed memory from then on: twice as much as the
largest block that was freed. A worker's batches are shared memory, so that nothing of that size is
ever freed there. A block of the size is allocated here and freed, without being touched. Other
allocators do with it what they do with any block.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

from penstock.data.profiling.new_memory import cost_of_new
from penstock.data.sizes import MAX_DEPTH, MOST_ITEMS
from penstock.throughput.observations.new_memory import NewMemory

LARGEST: Final = 1 << 32
LOOKS: Final = 6
"""Batches after which a worker looks what new memory costs."""


class RetainedMemory:
    """Of one worker; ``batches``: the number of the next one that is made with it, from 1."""

    def __init__(self) -> None:
        self.batches = 0
        self.cost: NewMemory | None = None
        """Of new memory, as found since the last batch."""
        self._largest = 0

    def keep(self, batch: Any) -> None:
        """Free a block as large as the largest tensor of a batch, unless there was one as large."""
        self.batches += 1
        size = largest_of(batch)
        if self._largest < size <= LARGEST:
            self._largest = size
            _allocate_and_free(size)
        self.cost = cost_of_new(1) if self.batches <= LOOKS else None


def largest_of(batch: Any, depth: int = 0) -> int:
    """Bytes of the largest array or tensor in a batch."""
    if depth > MAX_DEPTH:
        return 0
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return max((largest_of(one, depth + 1) for one in batch[:MOST_ITEMS]), default=0)
    size = getattr(batch, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _allocate_and_free(size: int) -> None:
    try:
        libc = ctypes.CDLL(None)
        malloc, free = libc.malloc, libc.free
    except (OSError, AttributeError):
        return
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    free(malloc(size))  # free(NULL) does nothing
