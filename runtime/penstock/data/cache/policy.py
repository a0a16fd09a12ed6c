"""Which files a cache keeps: those met first, until it is full, and nothing makes room: pure.

Training reads every file once in an epoch, in a new order. A cache that replaces what it holds then
gives up a file shortly before it comes again; one that keeps what it has finds a share x of the
files in every epoch when it holds a share x of their bytes (MinIO; DS-Analyzer, PVLDB 14(5),
section 6.1). Those met first are a random part of the data set, since the order is random.

Guarantees, for any interleaving of calls: what is held, with what is being read in, is within the
capacity; a file that changed is never found, and what was held of it is given up when it is met;
within its data set nothing else is ever given up. Room that nobody has a quota of is for all. What
a data set has beyond its quota stays until another needs it that has less than its own: the owner
of the memory asks which parts of it may go (`lots_to_give`), and gives them up.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

LARGEST_BYTES: Final = 64 << 20
"""Of a file that is kept, unless somebody says otherwise."""


class Key(NamedTuple):
    """One version of a file. A file that is written to has another key afterwards."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @property
    def file(self) -> tuple[int, int]:
        """Whichever version it is of."""
        return self.device, self.inode


def key_of(status: os.stat_result) -> Key:
    """The version of a file that a status is of."""
    return Key(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Verdict(StrEnum):
    """What becomes of a file that is met."""

    HIT = "hit"
    ADMIT = "admit"  # read it in, then `note_read`; or `abandon`
    WAIT = "wait"  # it is being read in for somebody else
    PASS = "pass"  # it is read as ever


class Meeting(NamedTuple):
    """What to do with a file that was met, and whose bytes are no longer held."""

    verdict: Verdict
    given_up: tuple[Key, ...] = ()


class Lot(NamedTuple):
    """Files of a data set whose memory can be given back together, and only so."""

    data_set: str
    public: bool
    number: int
    held: int  # bytes of its files
    memory: int  # bytes that are free when it is given back


@dataclass(slots=True)
class _DataSet:
    """What is held of one data set."""

    keys: dict[Key, bool] = field(default_factory=dict)  # in the order of admission; read already?
    held: int = 0
    quota: int | None = None

    @property
    def lacking(self) -> int:
        """Bytes that it has a right to, and does not hold."""
        return 0 if self.quota is None else max(0, self.quota - self.held)

    @property
    def excess(self) -> int:
        """Bytes that others may have."""
        return 0 if self.quota is None else max(0, self.held - self.quota)


class MinIOPolicy:
    """See the module's docstring. Sizes are bytes of memory, as the owner of it counts them."""

    def __init__(self, capacity: int, largest: int = LARGEST_BYTES) -> None:
        """Raises ValueError: no capacity, or a bound below one byte."""
        for name, value in (("capacity", capacity), ("largest", largest)):
            if value < 1:
                raise ValueError(f"{name}: {value} bytes; at least 1")
        self.capacity = capacity
        self.largest = min(largest, capacity)
        self.held_bytes = 0
        self._sets: dict[str, _DataSet] = {}
        self._places: dict[tuple[int, int], tuple[Key, str]] = {}  # of each file, its version

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Key) -> bool:
        """Whether this very version lies in the cache, ready to be given."""
        found = self._places.get(key.file)
        return found is not None and found[0] == key and self._sets[found[1]].keys[key]

    def held_of(self, data_set: str) -> int:
        """Bytes of a data set, with those that are being read in."""
        found = self._sets.get(data_set)
        return 0 if found is None else found.held

    def keys_of(self, data_set: str) -> Iterator[Key]:
        """The files of a data set that are ready, in the order of their admission."""
        found = self._sets.get(data_set)
        return iter(() if found is None else [key for key, ready in found.keys.items() if ready])

    def meet(self, key: Key, data_set: str = "") -> Meeting:
        """A file of a data set is about to be read.

        With ADMIT its bytes are counted from now on.
        """
        given_up: list[Key] = []
        found = self._places.get(key.file)
        if found is not None:
            if found[0] == key:
                ready = self._sets[found[1]].keys[key]
                return Meeting(Verdict.HIT if ready else Verdict.WAIT)
            self._give_up(found[0])
            given_up.append(found[0])
        if not (0 < key.size <= self.largest and self._has_room(key.size, data_set)):
            return Meeting(Verdict.PASS, tuple(given_up))
        one = self._sets.setdefault(data_set, _DataSet())
        one.keys[key] = False
        one.held += key.size
        self.held_bytes += key.size
        self._places[key.file] = key, data_set
        return Meeting(Verdict.ADMIT, tuple(given_up))

    def note_read(self, key: Key) -> bool:
        """A file that was admitted lies in the cache now; False if it was given up meanwhile."""
        found = self._places.get(key.file)
        if found is None or found[0] != key:
            return False
        self._sets[found[1]].keys[key] = True
        return True

    def abandon(self, key: Key) -> None:
        """A file that was admitted could not be read, or is not what it was: its room is free."""
        found = self._places.get(key.file)
        if found is not None and found[0] == key:
            self._give_up(key)

    def set_quotas(self, quotas: Mapping[str, int]) -> None:
        """Bytes that each data set has a right to; whoever is not named has what is left.

        What is beyond a quota stays until another data set needs the room.
        """
        for data_set in quotas:
            self._sets.setdefault(data_set, _DataSet())
        for data_set, one in self._sets.items():
            one.quota = quotas.get(data_set)

    def may_claim(self, data_set: str, size: int) -> bool:
        """Whether a data set has a right to so many bytes more, which others have."""
        own = self._sets.get(data_set)
        if own is None or own.lacking < size or size > self.largest:
            return False
        return any(one.excess for name, one in self._sets.items() if name != data_set)

    def lots_to_give(self, size: int, data_set: str, lots: Sequence[Lot]) -> list[Lot]:
        """What others give up for a file of a data set: nothing, or enough for it.

        Those that come first, and never so that another has less than its quota.
        """
        if not self.may_claim(data_set, size):
            return []
        excess = {name: one.excess for name, one in self._sets.items() if name != data_set}
        chosen: list[Lot] = []
        free = 0
        for lot in lots:
            if free >= size:
                break
            if 0 < lot.held <= excess.get(lot.data_set, 0):
                excess[lot.data_set] -= lot.held
                free += lot.memory
                chosen.append(lot)
        return chosen if free >= size else []

    def give_up(self, keys: Collection[Key]) -> None:
        """These files are held no more."""
        for key in keys:
            self._give_up(key)

    def drop(self, data_set: str | None = None) -> tuple[Key, ...]:
        """Give up a data set, or everything; says what."""
        names = list(self._sets) if data_set is None else [data_set]
        dropped: list[Key] = []
        for name in names:
            one = self._sets.get(name)
            for key in list(one.keys if one is not None else ()):
                self._give_up(key)
                dropped.append(key)
        return tuple(dropped)

    def _has_room(self, size: int, data_set: str) -> bool:
        """Whether so many bytes more of a data set fit, but for what others have a right to."""
        own = self._sets.get(data_set)
        free = self.capacity - self.held_bytes
        if own is not None and size <= own.lacking:
            return size <= free
        return size <= free - sum(
            one.lacking for name, one in self._sets.items() if name != data_set
        )

    def _give_up(self, key: Key) -> None:
        _, data_set = self._places.pop(key.file)
        one = self._sets[data_set]
        del one.keys[key]
        one.held -= key.size
        self.held_bytes -= key.size

    def check_invariants(self) -> None:
        """What holds after every call; for tests."""
        assert 0 <= self.held_bytes <= self.capacity
        assert self.held_bytes == sum(one.held for one in self._sets.values())
        assert len(self._places) == sum(len(one.keys) for one in self._sets.values())
        for data_set, one in self._sets.items():
            assert one.held == sum(key.size for key in one.keys)
            for key in one.keys:
                assert self._places[key.file] == (key, data_set)
