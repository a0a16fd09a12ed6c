"""The form of a journal: framed records, of which the first is a snapshot.

One frame is ``length (4 bytes) | CRC-32 (4 bytes) | msgpack``. Reading stops at the first frame
that is cut off or damaged: what comes before it is exactly what had been written by some earlier
moment, so a journal that was cut at any byte gives back a state that the ledger really had.

This module only turns values into bytes and back; the file belongs to `penstock.trainer.journal`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from penstock.data.ledger.errors import SnapshotError
from penstock.data.ledger.events import Event, from_record, to_record
from penstock.data.ledger.ledger import Ledger
from penstock.data.ledger.state import LedgerOptions, LedgerState

MAGIC: Final = b"PNSTKLG1"
MAX_RECORD_BYTES: Final = 1 << 24
_FRAME: Final = struct.Struct("<II")


def frame(value: Any) -> bytes:
    """One record."""
    payload: bytes = msgpack.packb(value)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def begin(ledger: Ledger, extra: Any = None) -> bytes:
    """The head of a new journal: everything up to now in one snapshot."""
    return MAGIC + frame({"ledger": ledger.snapshot(), "extra": extra})


def append(events: Iterable[Event]) -> bytes:
    """The records of events, to be written behind the head."""
    return b"".join(frame(to_record(event)) for event in events)


def unframe(data: bytes, offset: int) -> Iterator[tuple[Any, int]]:
    """The records from ``offset`` on, each with the offset behind it, up to the first bad one."""
    while offset + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, offset)
        end = offset + _FRAME.size + length
        if length > MAX_RECORD_BYTES or end > len(data):
            return
        payload = data[offset + _FRAME.size : end]
        if zlib.crc32(payload) != checksum:
            return
        yield msgpack.unpackb(payload, strict_map_key=False), end
        offset = end


@dataclass(frozen=True)
class Recovered:
    """What a journal gave back: a state, and how much of the file was good."""

    ledger: Ledger
    extra: Any
    good_bytes: int
    lost_bytes: int


def recover(data: bytes, options: LedgerOptions, now: float, fence_floor: int = 0) -> Recovered:
    """The ledger as of the last whole record; ``fence_floor`` as for `Ledger`.

    Raises:
        SnapshotError: not even the head is whole, or it belongs to another job.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise SnapshotError("the file does not begin like a ledger journal")
    frames = unframe(data, len(MAGIC))
    head = next(frames, None)
    if head is None or not isinstance(head[0], dict) or "ledger" not in head[0]:
        raise SnapshotError("the journal's snapshot is cut off or damaged")
    content, good = head
    state = LedgerState.restore(options, content["ledger"], now, fence_floor)
    for record, end in frames:
        state.apply(from_record(record))
        good = end
    state.rearm(now)
    ledger = Ledger(options, state=state)
    return Recovered(ledger, content.get("extra"), good, len(data) - good)
