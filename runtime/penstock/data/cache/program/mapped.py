"""Files of a path that lie in the node's cache, read from its memory without asking anybody."""

from __future__ import annotations

import mmap
import os

from penstock.data.cache.index import IN_USE, LEAST_BYTES, Index, part_of
from penstock.data.cache.policy import Key


class MappedPath:
    """What the daemon has granted a program: an index, and parts of the arena, all read-only.

    A part has a number that no other part of this arena ever has.
    """

    def __init__(self, index: int, largest: int) -> None:
        """Takes the descriptor, and closes it. Raises OSError, ValueError.

        ``largest``: bytes of the largest file that is kept as a whole.
        """
        self.largest = largest
        memory = _map(index)
        if len(memory) < LEAST_BYTES:
            size = len(memory)
            memory.close()
            raise ValueError(f"an index of {size} bytes; it has {LEAST_BYTES} at least")
        self._index = Index(memory)
        self._stamp = self._index.stamp
        self._parts: dict[int, memoryview] = {}

    @property
    def in_use(self) -> bool:
        """Whether the daemon still keeps all of it; else it is to be let go."""
        return self._stamp.startswith(IN_USE) and self._index.stamp == self._stamp

    def lacks(self, key: Key) -> int | None:
        """The part that a file lies in, if the file is here and the part was not granted yet."""
        found = self._index.find(key)
        if found is None:
            return None
        number, _ = part_of(found[1])
        return None if number in self._parts else number

    def add(self, number: int, part: int) -> None:
        """A part was granted. Takes its descriptor, and closes it. Raises OSError, ValueError."""
        self._parts[number] = memoryview(_map(part))

    def read(self, key: Key, at: int = 0, size: int | None = None) -> bytes | None:
        """A copy of a file or range, or of so many bytes from there in it; None: it is not here.

        A place is used for another file only after its entry is gone, so that what was copied is
        the file if the entry is there before and after.
        """
        found = self._index.find(key)
        if found is None:
            return None
        entry, place = found
        number, start = part_of(place)
        part = self._parts.get(number)
        if part is None:
            return None
        length = key.length - at if size is None else min(size, key.length - at)
        copy = bytes(part[start + at : start + at + length])
        return copy if len(copy) == length and self._index.still(entry, key, place) else None


def _map(descriptor: int) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(descriptor)
