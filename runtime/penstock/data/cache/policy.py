"""Which files a cache keeps: those met first, until it is full, and nothing makes room: pure.

Files that are larger than a bound are kept in ranges, each for itself as if it were a file.

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
"""Of a file that is kept as a whole, unless somebody says otherwise."""
RANGE_BYTES: Final = 1 << 20
"""Of a larger one so much is kept or not."""
MOST_RANGES: Final = 1 << 32
"""Of a file."""


class Key(NamedTuple):
    """One version of a file, or a range of it. One that is written to has another key afterwards.

    Attributes:
        size: bytes of the whole file.
        changed_ns: when it was last written to, or anything else of it changed. That is the
            kernel's to say: the time of its last writing is whatever a program makes it.
        number: of the range, from 1; 0: the whole file.
    """

    device: int
    inode: int
    size: int
    changed_ns: int
    number: int = 0

    @property
    def file(self) -> tuple[int, int]:
        """Whichever version and range it is of."""
        return self.device, self.inode

    @property
    def piece(self) -> tuple[int, int, int]:
        """The same range, or whole, of whichever version."""
        return self.device, self.inode, self.number

    @property
    def start(self) -> int:
        """Where it begins in the file."""
        return (self.number - 1) * RANGE_BYTES if self.number else 0

    @property
    def length(self) -> int:
        """Its bytes."""
        return min(RANGE_BYTES, self.size - self.start) if self.number else self.size

    @property
    def there(self) -> bool:
        """Whether the file has such a range, or anything in it."""
        return 0 <= self.number < MOST_RANGES and self.length > 0

    def range(self, number: int) -> Key:
        """A range of the same version of the file."""
        return self._replace(number=number)


def key_of(status: os.stat_result, number: int = 0) -> Key:
    """The version of a file that a status is of, or a range of it."""
    return Key(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, number)


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
        self._places: dict[tuple[int, int, int], tuple[Key, str]] = {}  # of a piece, its version
        self._ranges: dict[tuple[int, int], set[int]] = {}  # of files that are not held whole

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Key) -> bool:
        """Whether this very version lies in the cache, ready to be given."""
        found = self._places.get(key.piece)
        return found is not None and found[0] == key and self._sets[found[1]].keys[key]

    def version(self, piece: tuple[int, int, int]) -> Key | None:
        """The version of a piece that lies in the cache, ready to be given."""
        found = self._places.get(piece)
        return found[0] if found is not None and found[0] in self else None

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
        found = self._places.get(key.piece)
        if found is not None and found[0] == key:
            ready = self._sets[found[1]].keys[key]
            return Meeting(Verdict.HIT if ready else Verdict.WAIT)
        given_up = self._other_versions(key)
        self.give_up(given_up)
        size = key.length
        if not (self.keeps(key) and self._has_room(size, data_set)):
            return Meeting(Verdict.PASS, tuple(given_up))
        one = self._sets.setdefault(data_set, _DataSet())
        one.keys[key] = False
        one.held += size
        self.held_bytes += size
        self._places[key.piece] = key, data_set
        if key.number:
            self._ranges.setdefault(key.file, set()).add(key.number)
        return Meeting(Verdict.ADMIT, tuple(given_up))

    def keeps(self, key: Key) -> bool:
        """Whether files of that size are kept whole, or in ranges, as the key has it."""
        if not key.number:
            return 0 < key.size <= self.largest
        return key.there and key.size > self.largest and key.length <= self.capacity

    def _other_versions(self, key: Key) -> list[Key]:
        """What is held of a file as it was: all of it is of one version."""
        numbers = self._ranges.get(key.file, {0})
        held = self._places.get((*key.file, next(iter(numbers))))
        if held is None or held[0][:4] == key[:4]:
            return []
        return [self._places[(*key.file, number)][0] for number in numbers]

    def note_read(self, key: Key) -> bool:
        """A file that was admitted lies in the cache now; False if it was given up meanwhile."""
        found = self._places.get(key.piece)
        if found is None or found[0] != key:
            return False
        self._sets[found[1]].keys[key] = True
        return True

    def abandon(self, key: Key) -> None:
        """A file that was admitted could not be read, or is not what it was: its room is free."""
        found = self._places.get(key.piece)
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
        if own is None or own.lacking < size:
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
        _, data_set = self._places.pop(key.piece)
        if key.number:
            numbers = self._ranges[key.file]
            numbers.discard(key.number)
            if not numbers:
                del self._ranges[key.file]
        one = self._sets[data_set]
        del one.keys[key]
        one.held -= key.length
        self.held_bytes -= key.length

    def check_invariants(self) -> None:
        """What holds after every call; for tests."""
        assert 0 <= self.held_bytes <= self.capacity
        assert self.held_bytes == sum(one.held for one in self._sets.values())
        assert len(self._places) == sum(len(one.keys) for one in self._sets.values())
        for data_set, one in self._sets.items():
            assert one.held == sum(key.length for key in one.keys)
            for key in one.keys:
                assert self._places[key.piece] == (key, data_set)
                assert not key.number or key.number in self._ranges[key.file]
        for file, numbers in self._ranges.items():
            assert len({self._places[(*file, number)][0][:4] for number in numbers}) == 1
            assert (*file, 0) not in self._places
