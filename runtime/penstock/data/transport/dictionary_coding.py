"""Arrays of few different values as one byte a value: what pictures are after ToTensor, bit by bit.

A picture's channel has at most 256 levels, also when it was made floats and normalised: these are
four bytes for each of what one byte tells. Over a link that is slower than the making of batches
that counts. So an array is cut into chunks, by its planes and by the channels that lie side by side
in memory, and one with at most 256 different words is sent as a dictionary of them and a byte for
each word (as Parquet does with columns). The words are taken as bits: what is decoded is what was
encoded, whatever it means.

To cut the pipeline where its values are small, and to run its end where the batch arrives, would
save the same bytes, at the price of running the program's transforms in the thread of its training.

A dictionary is kept as a table by a multiplicative hash (Knuth, The Art of Computer Programming 3,
section 6.4) without collisions, so that encoding is a few passes of array arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np

from penstock.data.errors import FrameError
from penstock.data.transport.batch_codec import Packed

LEAST_BYTES: Final = 64 << 10
"""Smaller arrays are sent as they are."""
ENTRIES: Final = 256
MOST_DICTIONARIES: Final = 64
"""Of one array; then it is sent as it is."""
WORTH: Final = 0.7
"""Of its bytes: a batch that would have more is sent as it is."""
MAX_SEGMENTS: Final = 4096
MOST_COLUMNS: Final = 4
_CHUNK_ROWS: Final = (1 << 12, 1 << 18)
_DEFAULT_ROWS: Final = 1 << 16
_TABLE_BITS: Final = 16
_MULTIPLIERS: Final = tuple(
    0x9E3779B1 * odd & 0xFFFFFFFF | 1 for odd in (1, 3, 5, 7, 11, 13, 17, 19, 23, 29)
)
_OTHER_HALF: Final = np.uint32(0x85EBCA6B)
_WORDS: Final[dict[int, Any]] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Coded:
    """A batch as it goes over the link: ``coding`` says how, ``parts`` are together ``size``."""

    coding: bytes
    parts: list[Any]
    size: int


class _Dictionary:
    """At most 256 words, and where each is, by its hash."""

    def __init__(self, words: Array, multiplier: int) -> None:
        """Raises ValueError where two of the words have one hash."""
        self.words = words
        self._multiplier = np.uint32(multiplier)
        slots = self._slots(words)
        if len(np.unique(slots)) < len(words):
            raise ValueError("two words in one place")
        self._table = np.full(1 << _TABLE_BITS, words[0], words.dtype)
        self._codes = np.zeros(1 << _TABLE_BITS, np.uint8)
        self._table[slots] = words
        self._codes[slots] = np.arange(len(words), dtype=np.uint8)

    def encode(self, chunk: Array) -> Array | None:
        """A byte for each word; None if one of them is not known."""
        slots = self._slots(chunk)
        if not np.array_equal(self._table.take(slots), chunk):
            return None
        return self._codes.take(slots)

    def _slots(self, words: Array) -> Array:
        """Of contiguous words. 32 bits suffice, and larger arrays are new pages each time."""
        halves = words.view(np.uint32).reshape(len(words), -1)
        hashed = halves[:, 0] * self._multiplier
        if halves.shape[1] > 1:
            hashed ^= halves[:, 1] * self._multiplier * _OTHER_HALF
        hashed >>= np.uint32(32 - _TABLE_BITS)
        return hashed.astype(np.intp)


class Encoder:
    """Encodes one batch after the other; what it learned of one it tries with the next."""

    def __init__(self) -> None:
        self._known: list[_Dictionary] = []  # those that were of use last come first

    def encode(self, packed: Packed) -> Coded | None:
        """The batch in fewer bytes; None where that would save too little."""
        segments: list[list[Any]] = []
        parts: list[Any] = []
        size = left = 0
        for part in packed.parts:
            count = len(part) if type(part) is bytes else part.nbytes
            found = self._array(part) if count >= LEAST_BYTES and type(part) is not bytes else None
            if found is None:
                left += count
                if left > WORTH * packed.size:
                    return None
                segments.append([count])
                parts.append(part)
                size += count
            else:
                segment, coded = found
                segments.append(segment)
                parts += coded
                size += sum(one.nbytes for one in coded)
        if size > WORTH * packed.size or len(segments) > MAX_SEGMENTS:
            return None
        return Coded(msgpack.packb(segments), parts, size)

    def _array(self, array: Array) -> tuple[list[Any], list[Array]] | None:
        kind = _WORDS.get(array.dtype.itemsize)
        if kind is None or not array.flags.c_contiguous or array.dtype.kind not in "fiu":
            return None
        columns, length = _columns(array.shape), _chunk_rows(array.shape)
        words = array.reshape(-1, columns).view(kind)
        used: list[_Dictionary] = []
        which, codes = [], []
        for rows, column in _chunks(len(words), columns, length):
            found = self._chunk(np.ascontiguousarray(words[rows, column]), len(used))
            if found is None:
                return None
            dictionary, coded = found
            if dictionary not in used:
                used.append(dictionary)
            which.append(used.index(dictionary))
            codes.append(coded)
        entries = np.zeros((len(used), ENTRIES), kind)
        for row, one in zip(entries, used, strict=True):
            row[: len(one.words)] = one.words
        segment = [len(words), columns, kind.itemsize, length, bytes(which), len(used)]
        return segment, [entries, *codes]

    def _chunk(self, chunk: Array, used: int) -> tuple[_Dictionary, Array] | None:
        for at, known in enumerate(self._known):
            if known.words.dtype == chunk.dtype and (codes := known.encode(chunk)) is not None:
                self._known.insert(0, self._known.pop(at))
                return known, codes
        if used >= MOST_DICTIONARIES or (words := _few(chunk)) is None:
            return None
        made = self._learn(words)
        if made is None:
            return None
        codes = made.encode(chunk)
        return None if codes is None else (made, codes)

    def _learn(self, words: Array) -> _Dictionary | None:
        """A dictionary with these words, and with those of one that nearly has them."""
        candidates = [words]
        for known in self._known:
            if known.words.dtype == words.dtype:
                both = np.union1d(known.words, words)
                if len(both) <= ENTRIES:
                    candidates.insert(0, both)
                    self._known.remove(known)
                    break
        for wanted in candidates:
            for multiplier in _MULTIPLIERS:
                try:
                    made = _Dictionary(wanted, multiplier)
                except ValueError:
                    continue
                self._known.insert(0, made)
                del self._known[MOST_DICTIONARIES // 8 :]
                return made
        return None


def decode(coding: object, body: memoryview, into: memoryview) -> None:
    """Write the batch again.

    Args:
        coding, body: as of `Coded`; nothing of them is believed.
        into: of the batch's bytes; all of it is written.

    Raises:
        FrameError: it is nothing that `Encoder` makes, or of another length.
    """
    try:
        segments = msgpack.unpackb(coding, max_array_len=MAX_SEGMENTS)
        read = written = 0
        for segment in segments:
            if len(segment) == 1:
                (count,) = segment
                _check(0 <= count <= min(len(body) - read, len(into) - written))
                into[written : written + count] = body[read : read + count]
                read, written = read + count, written + count
            else:
                taken, made = _decode_array(segment, body[read:], into[written:])
                read, written = read + taken, written + made
        _check(read == len(body) and written == len(into))
    except (TypeError, ValueError, LookupError, msgpack.UnpackException) as error:
        raise FrameError(f"a batch whose coding cannot be read: {error}") from error


def _decode_array(segment: Sequence[Any], body: memoryview, into: memoryview) -> tuple[int, int]:
    """Bytes that were read and written."""
    rows, columns, itemsize, length, which, dictionaries = segment
    kind = _WORDS[itemsize]
    _check(0 < columns <= MOST_COLUMNS and length > 0 and 0 < dictionaries <= MOST_DICTIONARIES)
    count = rows * columns
    _check(0 < count <= len(into) // itemsize and len(which) == -(-rows // length) * columns)
    start = dictionaries * ENTRIES * itemsize
    _check(start + count <= len(body))
    entries = np.frombuffer(body[:start], kind).reshape(dictionaries, ENTRIES)
    codes = np.frombuffer(body[start : start + count], np.uint8)
    words = np.frombuffer(into[: count * itemsize], kind).reshape(rows, columns)
    read = 0
    for dictionary, (chunk, column) in zip(which, _chunks(rows, columns, length), strict=True):
        place = words[chunk, column]
        # A byte is always an entry; "raise" would have a copy made.
        entries[dictionary].take(codes[read : read + len(place)], out=place, mode="clip")
        read += len(place)
    return start + count, count * itemsize


def _chunks(rows: int, columns: int, length: int) -> Iterator[tuple[slice, int]]:
    for start in range(0, rows, length):
        for column in range(columns):
            yield slice(start, min(rows, start + length)), column


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError("lengths that do not fit")


def _columns(shape: tuple[int, ...]) -> int:
    """Channels that lie side by side in memory, each with values of its own."""
    return shape[-1] if len(shape) > 1 and 1 < shape[-1] <= MOST_COLUMNS else 1


def _chunk_rows(shape: tuple[int, ...]) -> int:
    """Of the innermost plane of the array that is of a sensible size."""
    least, most = _CHUNK_ROWS
    rows = 1
    for length in reversed(shape[1:-1] if _columns(shape) > 1 else shape[1:]):
        if rows >= least:
            break
        rows *= length
    return rows if least <= rows <= most else _DEFAULT_ROWS


def _few(chunk: Array) -> Array | None:
    """The different words of a chunk; None if there are more than a dictionary has."""
    step = max(1, len(chunk) // 1024)
    if len(np.unique(chunk[::step])) > ENTRIES:
        return None  # what is not coded is known soon
    words = np.unique(chunk)
    return words if len(words) <= ENTRIES else None
