"""Where the batch that is being made lies: in the shared memory that it is to be delivered in.

Otherwise a batch is made in memory of its own, whose every page is a fault, and copied from it:
of a batch of 150 MB that is most of what delivering it costs. Only arrays that a worker makes
itself are put here; whatever the code of the program makes is copied, since it may be kept, and the
memory is used again.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from penstock.data.transport.batch_codec import Packed
from penstock.data.transport.blocks import create_shared

PLACED_BYTES: Final = 64 << 10
"""A smaller batch is made where it comes and copied: a new block costs more."""
_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE (Linux 5.14), which the module `mmap` does not name."""


class BatchMemory:
    """The memory of one batch after the other; for one thread."""

    def __init__(self) -> None:
        self._find: Callable[[int], mmap.mmap | None] = _no_block
        self._can_share = self._private = False
        self._scratch: mmap.mmap | None = None
        self._own: tuple[mmap.mmap, int] | None = None
        self._used: mmap.mmap | None = None
        self._populated: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    @contextlib.contextmanager
    def of_batch(
        self,
        find: Callable[[int], mmap.mmap | None],
        *,
        can_share: bool,
        private: bool = False,
    ) -> Iterator[None]:
        """While a batch is made and delivered.

        ``find`` gives the block for so many bytes, if there is one; it is asked when they are about
        to be written. ``can_share``: whether it may be delivered in new shared memory; ``private``:
        it is to be written to where no other process can have it made, and is made in memory that
        is kept.
        """
        self._find, self._can_share, self._private = find, can_share, private
        try:
            yield
        finally:
            self._drop_own()
            self._find, self._used = _no_block, None

    def reserve(self, size: int) -> mmap.mmap | None:
        """Memory for a batch of so many bytes: its block, or new memory; None if neither."""
        self._used = None
        block = None if self._private else self._find(size)
        if block is not None and size <= len(block):
            self._used = block
            if block not in self._populated:
                self._populated.add(block)
                populate(block)
        elif self._private:
            if self._scratch is None or size > len(self._scratch):
                self._scratch = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                populate(self._scratch)
            self._used = self._scratch
        elif self._can_share and size >= PLACED_BYTES:
            if self._own is None or size > len(self._own[0]):
                self._drop_own()
                self._own = _create(size)
            self._used = self._own[0] if self._own is not None else None
        return self._used

    def write(self, packed: Packed, memory: mmap.mmap) -> None:
        """Have a batch in ``memory``, in which some of it may lie where it belongs."""
        if memory is self._used:
            write_rest(memory, packed)
        else:
            write(memory, packed)

    def take_own(self, packed: Packed) -> int | None:
        """The descriptor of new memory with the batch in it, to be closed; None if in a block."""
        if self._own is None or self._used is not self._own[0]:
            return None
        memory, descriptor = self._own
        if packed.size > len(memory):
            return None
        write_rest(memory, packed)
        self._own = None
        return descriptor

    def _drop_own(self) -> None:
        if self._own is not None:
            os.close(self._own[1])
            self._own = None


def _no_block(size: int) -> None:
    """There is none."""


def populate(memory: mmap.mmap) -> None:
    """Have all pages there at once, at a third of the price of a fault for each."""
    with contextlib.suppress(OSError):  # a kernel that does not know it
        memory.madvise(_POPULATE_WRITE)


def write(memory: mmap.mmap, packed: Packed) -> None:
    """Copy a batch to the beginning of ``memory``."""
    memory.seek(0)
    for part in packed.parts:
        memory.write(part)  # half the price of an assignment to a slice


def write_rest(memory: mmap.mmap, packed: Packed) -> None:
    """As `write`, of a batch of which some parts lie in ``memory`` already."""
    first = _address(np.frombuffer(memory, np.uint8))
    last = first + len(memory)
    parts: list[tuple[int, Any]] = []
    at = 0
    for part in packed.parts:
        if isinstance(part, np.ndarray):
            size, where = part.nbytes, _address(part)
            if where != first + at:
                # What lies in the wrong place is saved before another part is written over it.
                parts.append((at, part.copy() if first <= where < last else part))
        else:
            size = len(part)
            parts.append((at, part))
        at += size
    for at, part in parts:
        memory.seek(at)
        memory.write(part)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _create(size: int) -> tuple[mmap.mmap, int] | None:
    try:
        descriptor = create_shared(size)
    except OSError:
        return None
    try:
        memory = mmap.mmap(descriptor, size)
    except (OSError, ValueError):
        os.close(descriptor)
        return None
    populate(memory)
    return memory, descriptor
