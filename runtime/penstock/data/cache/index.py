"""Where each file lies in an arena, in memory that programs of the node read without asking.

One process writes, any number read, and none waits: an entry has a checksum, so that one that is
just being written is not taken for one; and whoever has copied a file looks once more whether its
entry is still the same (`penstock.data.cache.program.mapped`). An entry has one of eight places,
which follow from the file; where all are taken the file is not in the index, and the daemon is
asked for it. The first bytes say whether the index is still in use, and change when a part of the
arena is given back.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from penstock.data.cache.policy import Key

IN_USE: Final = b"PNSCACHE"
HEADER_BYTES: Final = 64
WAYS: Final = 8
BYTES_PER_PLACE: Final = 16 << 10
"""Of the arena: files of that mean length still find a place."""
PART_BITS: Final = 40
"""Of a place: where it is in its part of the arena; the bits above say which part that is."""
_ENTRY: Final = struct.Struct("<QQQqQII")
_TIMES: Final = struct.Struct("<Q")
_CHECKED: Final = 44
LEAST_BYTES: Final = HEADER_BYTES + WAYS * _ENTRY.size
"""Of an index."""
_MIX: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_NONE: Final = bytes(_ENTRY.size)


def index_bytes(capacity: int) -> int:
    """The length of the index of an arena of so many bytes."""
    buckets = 1 << max(6, (capacity // (BYTES_PER_PLACE * WAYS)).bit_length())
    return HEADER_BYTES + buckets * WAYS * _ENTRY.size


def place_of(part: int, start: int) -> int:
    """A place in an arena, from the number of its part and where it is in there."""
    return part << PART_BITS | start


def part_of(place: int) -> tuple[int, int]:
    """The number of a place's part, and where it is in there."""
    return place >> PART_BITS, place & ((1 << PART_BITS) - 1)


class Index:
    """See the module's docstring."""

    def __init__(self, memory: Any) -> None:
        """``memory``: of `index_bytes`; all zero, or what another has written."""
        self._memory = memory
        self._bits = ((len(memory) - HEADER_BYTES) // (WAYS * _ENTRY.size)).bit_length() - 1

    @property
    def stamp(self) -> bytes:
        """Another one when the index is out of use, or a part of the arena was given back."""
        return bytes(self._memory[: len(IN_USE) + _TIMES.size])

    def begin(self) -> None:
        """The writer begins."""
        self._memory[: len(IN_USE)] = IN_USE

    def note_given_back(self) -> None:
        """A part of the arena was given back, of which nothing is found any more."""
        (times,) = _TIMES.unpack_from(self._memory, len(IN_USE))
        _TIMES.pack_into(self._memory, len(IN_USE), times + 1)

    def end(self) -> None:
        """The writer will change it no more: what it says is no longer so."""
        self._memory[: len(IN_USE)] = bytes(len(IN_USE))

    def find(self, key: Key) -> tuple[int, int] | None:
        """Where the entry of a file is, and the place of the file in the arena."""
        device, inode, size, changed_ns, number = key
        for at in self._places(key):
            found = _ENTRY.unpack_from(self._memory, at)
            if (
                found[1] == inode
                and found[2] == size
                and found[3] == changed_ns
                and found[0] == device
                and found[5] == number
                and zlib.crc32(self._memory[at : at + _CHECKED]) == found[6]
            ):
                return at, found[4]
        return None

    def still(self, at: int, key: Key, place: int) -> bool:
        """Whether an entry says what it said."""
        found = _ENTRY.unpack_from(self._memory, at)
        return found[:6] == (*key[:4], place, key.number)

    def add(self, key: Key, place: int) -> bool:
        """Have a file found; False where all its places are taken."""
        for at in self._places(key):
            if self._memory[at : at + _ENTRY.size] == _NONE:
                checked = (*key[:4], place, key.number)
                crc = zlib.crc32(_ENTRY.pack(*checked, 0)[:_CHECKED])
                self._memory[at : at + _ENTRY.size] = _ENTRY.pack(*checked, crc)
                return True
        return False

    def remove(self, key: Key) -> None:
        """Have a file not found any more."""
        if (found := self.find(key)) is not None:
            self._memory[found[0] : found[0] + _ENTRY.size] = _NONE

    def _places(self, key: Key) -> range:
        mixed = key.inode ^ (key.device << 17) ^ (key.number << 40)
        bucket = (mixed * _MIX & _MASK) >> (64 - self._bits)
        start = HEADER_BYTES + bucket * WAYS * _ENTRY.size
        return range(start, start + WAYS * _ENTRY.size, _ENTRY.size)
