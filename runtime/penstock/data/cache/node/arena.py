"""The memory of a cache: memfds that their maker alone can write to, given out in pieces.

A memfd has no name, so that nothing is left of it however its owner ends. It is sealed: nobody can
cut it off, and nobody but who had it mapped before can write to it, whatever their user. Pages that
nothing has lain in take no memory; a piece never moves. What is sealed can only be given back
whole: so an arena has many parts, and memory goes from one data set to another by the part.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import mmap
import os
from collections import deque
from typing import Final

from penstock.data.cache.index import part_of, place_of

RETIRED_SECONDS: Final = 2.0
"""After this a place is used again; to copy a file takes a few milliseconds."""
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


class Part:
    """A `SealedMemory` of an arena, in pieces."""

    def __init__(self, size: int) -> None:
        """Raises OSError: the system has no such memory."""
        self.sealed = SealedMemory(size)
        self.size = size
        self.touched = 0
        """Bytes up to which something lies or lay: the memory that it takes, at most."""
        self.live = 0
        """Bytes of pieces that were not retired."""
        self._free = Extents(size)
        self._retired: deque[tuple[float, int, int]] = deque()

    def take(self, size: int, room: int) -> int | None:
        """Where so many bytes are from now on; None: nowhere, or it takes more memory than that."""
        start = self._free.take(size)
        if start is None:
            return None
        touched = max(self.touched, start + size)
        if touched - self.touched > room:
            self._free.give_back(start, size)
            return None
        self.touched = touched
        self.live += size
        return start

    def retire(self, start: int, size: int, now: float) -> None:
        """Nothing lies there any more; the piece is free once nobody can be copying it."""
        self.live -= size
        self._retired.append((now, start, size))

    def use_retired(self, now: float) -> None:
        """Free what was retired long enough ago."""
        while self._retired and now - self._retired[0][0] > RETIRED_SECONDS:
            _, start, size = self._retired.popleft()
            self._free.give_back(start, size)


class Arena:
    """Memory in parts, each of which can be given back by itself. Not for several threads at once.

    A place is the number of a part, which no other part ever has, and where it is in there.
    """

    def __init__(self, part_bytes: int) -> None:
        """``part_bytes``: of a part; one for a piece that is larger is as large as that."""
        self._part_bytes = part_bytes
        self._parts: dict[int, Part] = {}
        self._made = 0

    @property
    def touched(self) -> int:
        """Bytes of memory that it takes, at most."""
        return sum(part.touched for part in self._parts.values())

    def take(self, size: int, room: int, now: float) -> int | None:
        """A place for so many bytes that takes up to ``room`` more memory; None: there is none."""
        for number, part in self._parts.items():
            if part.size - part.live < size:
                continue
            part.use_retired(now)
            start = part.take(size, room)
            if start is not None:
                return place_of(number, start)
        if size > room:
            return None
        try:
            part = Part(max(size, self._part_bytes))
        except OSError:  # no memory, or no descriptor: files are read as without a cache
            return None
        number, self._made = self._made, self._made + 1
        self._parts[number] = part
        part.take(size, room)
        return place_of(number, 0)

    def view(self, place: int, size: int) -> memoryview:
        """The bytes of a place; they stay as long as the view does."""
        number, start = part_of(place)
        return self._parts[number].sealed.memory[start : start + size]

    def retire(self, place: int, size: int, now: float) -> None:
        """Nothing lies at a place any more."""
        number, start = part_of(place)
        if (part := self._parts.get(number)) is not None:
            part.retire(start, size, now)

    def descriptor(self, number: int) -> int | None:
        """Of a part; None: there is none of that number."""
        part = self._parts.get(number)
        return None if part is None else part.sealed.descriptor

    def parts(self) -> dict[int, int]:
        """The memory that each part takes, newest first."""
        return {number: self._parts[number].touched for number in sorted(self._parts, reverse=True)}

    def give_back_empty(self) -> bool:
        """Give back the parts in which nothing lies; whether there was one."""
        empty = [number for number, part in self._parts.items() if not part.live]
        for number in empty:
            self._parts.pop(number).sealed.close()
        return bool(empty)

    def close(self) -> None:
        """Let go of the memory."""
        for part in self._parts.values():
            part.sealed.close()
        self._parts.clear()
