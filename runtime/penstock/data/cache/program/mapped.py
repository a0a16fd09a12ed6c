"""Files of a path that lie in the node's cache, read from its memory without asking anybody."""

from __future__ import annotations

import mmap
import os

from penstock.data.cache.index import Index
from penstock.data.cache.policy import Key


class MappedPath:
    """What the daemon has granted a program: an index and an arena, both read-only."""

    def __init__(self, index: int, arena: int) -> None:
        """Takes both descriptors, and closes them. Raises OSError, ValueError."""
        try:
            self._index = Index(_map(index))
            self._arena = memoryview(_map(arena))
        finally:
            os.close(index)
            os.close(arena)

    @property
    def in_use(self) -> bool:
        """Whether the daemon still keeps it; else it is to be let go."""
        return self._index.in_use

    def read(self, key: Key) -> bytes | None:
        """A copy of a file; None: it is not here.

        A place is used for another file only after its entry is gone, so that what was copied is
        the file if the entry is there before and after.
        """
        found = self._index.find(key)
        if found is None:
            return None
        at, place = found
        copy = bytes(self._arena[place : place + key.size])
        return copy if len(copy) == key.size and self._index.still(at, key, place) else None


def _map(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ)
