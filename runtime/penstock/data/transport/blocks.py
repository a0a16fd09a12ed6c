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
import resource
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from penstock.data.errors import FrameError

SMALL_BYTES: Final = 64 << 10
KEPT_BLOCKS: Final = 16
KEPT_BYTES: Final = 512 << 20
IDLE_LENDS: Final = 64
"""A shared block that was not needed while so many were lent is let go."""
MUCH_LARGER: Final = 4
"""A block that is so many times as large as needed is not used but let go."""

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
    """A block that two processes on one machine have mapped."""

    def __init__(self, number: int, descriptor: int, size: int) -> None:
        self.number = number
        self.size = size
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, size)
        self._root: weakref.ref[Root] | None = None
        self._copy: Root | None = None

    def root(self, back: Callable[[SharedBlock], None]) -> Root:
        """The bytes, for one batch; ``back`` is called when nobody refers to them any more."""
        if self._copy is not None:
            root, self._copy = self._copy, None
            return root
        root = np.frombuffer(self._memory, np.uint8)
        self._root = weakref.ref(root, lambda _: back(self))
        return root

    def copy_out(self) -> None:
        """Have its bytes in private memory, for its one batch."""
        self._copy = np.array(np.frombuffer(self._memory, np.uint8))
        self._memory.close()

    def close(self) -> None:
        """Let go of the descriptor; the memory lives as long as what lies in it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def forget_in_child(self) -> None:
        """In a process that was forked: unmap it, but for a batch that the program has there too.

        It is not kept out of forks (``MADV_DONTFORK``): whoever is forked has the objects all the
        same. To read a batch would end it, and to free one would unmap what has come to lie at that
        address since.
        """
        self.close()
        with contextlib.suppress(BufferError):  # a batch lies in it
            self._memory.close()


class SharedPool:
    """The shared blocks of a training process: each is lent to one writer at a time.

    All writers share them, so that there are no more than the batches that are under way need. Not
    for several threads at once, but for the return of a block, which happens in any.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, SharedBlock] = {}
        self.held_bytes = 0  # of all blocks, whether something lies in them or not
        self.dropped = 0  # blocks, so far
        self._free: deque[SharedBlock] = deque()  # appended to by the collector, in any thread
        self._next = 0
        self._lends = 0
        self._idle = 0  # least number of free blocks of late

    def lend(self, size: int) -> SharedBlock | None:
        """A block of at least so many bytes; None where the system gives none."""
        block = self._find(size)
        self._idle = min(self._idle, len(self._free))
        self._lends += 1
        if self._lends % IDLE_LENDS == 0:
            for _ in range(self._idle):
                self.drop(self._free.popleft())  # those that were used longest ago
            self._idle = len(self._free)
        return block

    def _find(self, size: int) -> SharedBlock | None:
        for _ in range(len(self._free)):
            block = self._free.pop()  # the one that was used last, which caches know
            if block.number not in self.blocks:
                continue
            if size <= block.size <= max(MUCH_LARGER * size, SMALL_BYTES):
                return block
            self.drop(block)  # batches have another size now
        if len(self.blocks) >= _most_blocks():
            return None
        try:
            descriptor = create_shared(_rounded(size))
        except OSError:
            return None
        try:
            return self._add(descriptor, _rounded(size))
        except (OSError, ValueError, OverflowError):
            os.close(descriptor)
            return None

    def adopt(self, descriptor: int, size: int) -> SharedBlock:
        """Take a block that a writer has made, with its descriptor.

        Beyond what this process may have open, what lies in it is copied out, and it is let go.

        Raises:
            FrameError: it could be cut off under the reader, or is smaller than claimed.
        """
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            if not seals & fcntl.F_SEAL_SHRINK or os.fstat(descriptor).st_size < size:
                raise FrameError("a shared block that is not sealed, or smaller than claimed")
            block = self._add(descriptor, size)
        except (OSError, ValueError) as error:
            os.close(descriptor)
            raise FrameError(f"a shared block that cannot be used: {error}") from error
        except FrameError:
            os.close(descriptor)
            raise
        if len(self.blocks) > _most_blocks():
            block.copy_out()
            self.drop(block)
        return block

    def _add(self, descriptor: int, size: int) -> SharedBlock:
        block = SharedBlock(self._next, descriptor, size)
        self._next += 1
        self.blocks[block.number] = block
        self.held_bytes += size
        return block

    def root(self, block: SharedBlock) -> Root:
        """The bytes of a block that a writer has filled; it is free again when they are dropped."""
        blocks, free = self.blocks, self._free

        def back(block: SharedBlock) -> None:
            if block.number in blocks:  # else it was let go, and its memory goes with it
                free.append(block)

        return block.root(back)

    def give_back(self, block: SharedBlock) -> None:
        """A block was not used."""
        self._free.append(block)

    def drop(self, block: SharedBlock) -> None:
        """Never lend a block again: another process may still write to it, or it is too small."""
        if self.blocks.pop(block.number, None) is not None:
            self.held_bytes -= block.size
            self.dropped += 1
            block.close()

    def trim(self, kept_bytes: int = KEPT_BYTES) -> None:
        """Let go of free blocks beyond so many bytes."""
        kept = 0
        for _ in range(len(self._free)):
            block = self._free.popleft()
            if block.number not in self.blocks:
                continue
            if kept + block.size > kept_bytes:
                self.drop(block)
            else:
                kept += block.size
                self._free.append(block)

    def close(self) -> None:
        """Nobody writes any more: let go of all but what lies in the program's batches."""
        for block in list(self.blocks.values()):
            self.drop(block)
        self._free.clear()

    def forget_in_child(self) -> None:
        """In a process that was forked: keep no memory of the parent's alive."""
        for block in self.blocks.values():
            block.forget_in_child()
        self.blocks.clear()
        self.held_bytes = 0
        self._free.clear()


def _most_blocks() -> int:
    """How many there may be: they have half of the descriptors that the program may have.

    It may keep every batch that it is given, and with each a block, of which `mmap` has another.
    """
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4


def create_shared(size: int) -> int:
    """The descriptor of fresh shared memory without a name, which cannot be cut off.

    Raises:
        OSError: there is none.
    """
    descriptor = os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Map a block that the other end made, and close the descriptor.

    Raises:
        ValueError: it is smaller than claimed.
    """
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
