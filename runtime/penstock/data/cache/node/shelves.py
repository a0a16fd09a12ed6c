"""Where the files of a node's cache lie: for each path an arena, and an index of it.

For one thread at a time. What is given up while somebody is being sent it keeps its place until
that is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.data.cache.index import Index, index_bytes, part_of
from penstock.data.cache.node.arena import Arena, SealedMemory
from penstock.data.cache.policy import Key, Lot

PARTS: Final = 256
LEAST_PART_BYTES: Final = 256 << 10
"""Memory goes from one path to another in so many parts of the cache, which are not smaller."""


@dataclass(slots=True)
class PartFiles:
    """The files in a part of an arena."""

    keys: dict[Key, None] = field(default_factory=dict)
    length: int = 0  # bytes of these
    used: int = 0  # how many are being read in or sent, those that were given up among them


class Shelf:
    """The files of one path that the same programs may read, and where they lie."""

    def __init__(self, capacity: int, indexed: int) -> None:
        """``capacity``: bytes of all paths; ``indexed``: those that the index has places for.

        Raises:
            OSError: the system has no such memory.
        """
        self.arena = Arena(max(LEAST_PART_BYTES, capacity // PARTS))
        self.index_memory = SealedMemory(index_bytes(indexed))
        self.index = Index(self.index_memory.memory)
        self.index.begin()
        self._files: dict[int, PartFiles] = {}

    def put(self, key: Key, place: int) -> PartFiles:
        """A file lies at a place from now on; what else is in that part."""
        found = self._files.setdefault(part_of(place)[0], PartFiles())
        found.keys[key] = None
        found.length += key.length
        return found

    def remove(self, key: Key, place: int) -> None:
        """A file is held no more."""
        found = self._files[part_of(place)[0]]
        del found.keys[key]
        found.length -= key.length

    def retire(self, key: Key, place: int, now: float) -> None:
        """Nobody reads the bytes of a file any more that is held no more."""
        number, _ = part_of(place)
        found = self._files.get(number)
        if found is not None and not found.keys and not found.used:
            del self._files[number]
        self.arena.retire(place, key.length, now)

    def unused_parts(self) -> Iterator[tuple[int, int, PartFiles]]:
        """Number, memory and files of the parts that nobody reads in or is sent a file of."""
        for number, memory in self.arena.parts().items():
            found = self._files.get(number)
            if found is not None and found.keys and not found.used:
                yield number, memory, found

    def give_back_empty(self) -> None:
        """Give back the parts of the arena in which nothing lies."""
        if self.arena.give_back_empty():
            self.index.note_given_back()

    def close(self) -> None:
        """Have programs let go of it, and let go."""
        self.index.end()
        self.index_memory.close()
        self.arena.close()


class Held:
    """A file in an arena."""

    __slots__ = ("_part", "crc", "gone", "key", "place", "shelf", "users", "view")

    def __init__(self, key: Key, shelf: Shelf, place: int) -> None:
        """Whoever makes it reads it in."""
        self.key = key
        self.shelf = shelf
        self.place = place
        self.view = shelf.arena.view(place, key.length)
        """Its bytes, until it is released."""
        self.crc = 0
        self.users = 0  # who reads it in, or is being sent it
        self.gone = False
        self._part = shelf.put(key, place)
        self.use()

    def use(self) -> None:
        """One more reads its bytes; `release` it."""
        self.users += 1
        if self.users == 1:
            self._part.used += 1

    def give_up(self, now: float) -> None:
        """It is held no more: its place is free once nobody reads its bytes."""
        self.gone = True
        self.shelf.remove(self.key, self.place)
        if not self.users:
            self.shelf.retire(self.key, self.place, now)

    def release(self, now: float) -> None:
        """One reads its bytes no more who did."""
        self.users -= 1
        if self.users:
            return
        self._part.used -= 1
        if self.gone:
            self.shelf.retire(self.key, self.place, now)


class Shelves:
    """Those of all paths."""

    def __init__(self, capacity: int, paths: int) -> None:
        """``capacity``: bytes of all together; ``paths``: how many there are.

        Their indexes together are those of twice the capacity at most, however many paths there
        are: a path that has more of it, of small files, has some of these found by the daemon.
        """
        self._capacity = capacity
        self._indexed = min(capacity, 2 * capacity // max(1, paths))
        self._of: dict[tuple[str, bool], Shelf] = {}  # of a path; whether all may read it

    def of(self, path: str, public: bool) -> Shelf:
        """A path's, made where there is none.

        Raises:
            OSError: the system has no such memory.
        """
        found = self._of.get((path, public))
        if found is None:
            # Nobody but the daemon looks for what not all may read, and that knows it anyway.
            indexed = self._indexed if public else 1
            found = self._of[path, public] = Shelf(self._capacity, indexed)
        return found

    @property
    def free_memory(self) -> int:
        """Bytes that no arena has touched."""
        return self._capacity - sum(one.arena.touched for one in self._of.values())

    def give_back_empty(self) -> None:
        """Give back the parts of all arenas in which nothing lies."""
        for shelf in self._of.values():
            shelf.give_back_empty()

    def lots(self, path: str) -> dict[Lot, Collection[Key]]:
        """The parts of other paths that nobody is reading in or being sent a file of.

        With the files of each, as far as it has any.
        """
        return {
            Lot(other, public, number, files.length, memory): files.keys
            for (other, public), shelf in self._of.items()
            if other != path
            for number, memory, files in shelf.unused_parts()
        }

    def close(self, path: str) -> None:
        """Let go of a path's; what is being sent or read in keeps its memory until then."""
        for public in (True, False):
            shelf = self._of.pop((path, public), None)
            if shelf is not None:
                shelf.close()
