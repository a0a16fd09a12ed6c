"""Where the files of a node's cache lie: for each path an arena, and an index of it.

For one thread at a time. What is given up while somebody is being sent it keeps its place until
that is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.data.cache.index import Index, index_bytes, part_of
from penstock.data.cache.node.arena import Arena, SealedMemory
from penstock.data.cache.policy import Key, Lot

PARTS: Final = 256
LEAST_PART_BYTES: Final = 256 << 10
"""Memory goes from one path to another in so many parts of the cache, which are not smaller."""


class Shelf:
    """The files of one path that the same programs may read, and where they lie."""

    def __init__(self, capacity: int) -> None:
        """Raises OSError: the system has no such memory."""
        self.arena = Arena(max(LEAST_PART_BYTES, capacity // PARTS))
        self.index_memory = SealedMemory(index_bytes(capacity))
        self.index = Index(self.index_memory.memory)
        self.index.begin()

    def give_back_empty(self) -> None:
        """Give back the parts of the arena in which nothing lies."""
        if self.arena.give_back_empty():
            self.index.note_given_back()

    def close(self) -> None:
        """Have programs let go of it, and let go."""
        self.index.end()
        self.index_memory.close()
        self.arena.close()


@dataclass(slots=True)
class Held:
    """A file in an arena."""

    key: Key
    shelf: Shelf
    place: int
    view: memoryview
    """Its bytes, until it is released."""
    crc: int = 0
    users: int = 1  # who reads it in, or is being sent it
    gone: bool = False

    def release(self, now: float) -> None:
        """One reads its bytes no more who did."""
        self.users -= 1
        if self.gone and not self.users:
            self.shelf.arena.retire(self.place, self.key.length, now)


class Shelves:
    """Those of all paths."""

    def __init__(self, capacity: int) -> None:
        """``capacity``: bytes of all together."""
        self._capacity = capacity
        self._of: dict[tuple[str, bool], Shelf] = {}  # of a path; whether all may read it

    def of(self, path: str, public: bool) -> Shelf:
        """A path's, made where there is none.

        Raises:
            OSError: the system has no such memory.
        """
        found = self._of.get((path, public))
        if found is None:
            found = self._of[path, public] = Shelf(self._capacity)
        return found

    @property
    def free_memory(self) -> int:
        """Bytes that no arena has touched."""
        return self._capacity - sum(one.arena.touched for one in self._of.values())

    def give_back_empty(self) -> None:
        """Give back the parts of all arenas in which nothing lies."""
        for shelf in self._of.values():
            shelf.give_back_empty()

    def lots(self, path: str, all_held: Iterable[Held]) -> tuple[list[Lot], dict[Lot, list[Key]]]:
        """The parts of other paths that nobody is reading in or being sent a file of."""
        files: dict[tuple[int, int], list[Held]] = {}
        for held in all_held:
            files.setdefault((id(held.shelf), part_of(held.place)[0]), []).append(held)
        lots, keys = [], {}
        for (other, public), shelf in self._of.items():
            for number, memory in shelf.arena.parts().items() if other != path else ():
                inside = files.get((id(shelf), number), [])
                if inside and not any(held.users for held in inside):
                    lot = Lot(
                        other, public, number, sum(held.key.length for held in inside), memory
                    )
                    lots.append(lot)
                    keys[lot] = [held.key for held in inside]
        return lots, keys

    def close(self, path: str) -> None:
        """Let go of a path's; what is being sent or read in keeps its memory until then."""
        for public in (True, False):
            shelf = self._of.pop((path, public), None)
            if shelf is not None:
                shelf.close()
