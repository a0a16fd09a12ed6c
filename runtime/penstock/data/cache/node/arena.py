"""The memory of a cache: memfds that their maker alone can write to, given out in pieces.

A memfd has no name, so that nothing is left of it however its owner ends. It is sealed: nobody can
cut it off, and nobody but who had it mapped before can write to it, whatever their user. Pages that
nothing has lain in take no memory; a piece never moves.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import mmap
import os
from typing import Final

_FUTURE_WRITE: Final = 0x0010  # F_SEAL_FUTURE_WRITE, Linux 5.1


class SealedMemory:
    """Memory that this process writes, and others may be given to read."""

    def __init__(self, size: int) -> None:
        """Raises OSError: the system has no such memory."""
        made = os.memfd_create("penstock-cache", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(made, size)
            self.memory = memoryview(mmap.mmap(made, size))
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _FUTURE_WRITE
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        except BaseException:
            os.close(made)
            raise
        self.descriptor = made

    def close(self) -> None:
        """Let go of it; who has it mapped keeps it."""
        with contextlib.suppress(BufferError):
            self.memory.release()
        os.close(self.descriptor)


class Extents:
    """Which parts of a range of bytes are free: first fit, neighbours are joined."""

    def __init__(self, size: int) -> None:
        self._starts = [0]
        self._ends = [size]

    def take(self, size: int) -> int | None:
        """Where so many bytes are from now on; None where no gap is so large."""
        for at, start in enumerate(self._starts):
            if self._ends[at] - start >= size:
                self._starts[at] += size
                if self._starts[at] == self._ends[at]:
                    del self._starts[at], self._ends[at]
                return start
        return None

    def give_back(self, start: int, size: int) -> None:
        """A part is free again."""
        at = bisect.bisect(self._starts, start)
        begin, end = start, start + size
        if at < len(self._starts) and self._starts[at] == end:
            end = self._ends[at]
            del self._starts[at], self._ends[at]
        if at and self._ends[at - 1] == start:
            at -= 1
            begin = self._starts[at]
            del self._starts[at], self._ends[at]
        self._starts.insert(at, begin)
        self._ends.insert(at, end)


class Arena:
    """A `SealedMemory` in pieces. Not for several threads at once, but for `view`."""

    def __init__(self, size: int) -> None:
        """Raises OSError: the system has no such memory."""
        self._sealed = SealedMemory(size)
        self.descriptor = self._sealed.descriptor
        self.size = size
        self.touched = 0
        """Bytes up to which something lies or lay: the memory that it takes, at most."""
        self._free = Extents(size)

    def take(self, size: int, room: int) -> int | None:
        """A place for so many bytes that takes up to ``room`` more memory; None: there is none."""
        place = self._free.take(size)
        if place is None:
            return None
        touched = max(self.touched, place + size)
        if touched - self.touched > room:
            self._free.give_back(place, size)
            return None
        self.touched = touched
        return place

    def view(self, place: int, size: int) -> memoryview:
        """The bytes of a place."""
        return self._sealed.memory[place : place + size]

    def give_back(self, place: int, size: int) -> None:
        """Nothing lies there any more."""
        self._free.give_back(place, size)

    def close(self) -> None:
        """Let go of the memory."""
        self._sealed.close()
