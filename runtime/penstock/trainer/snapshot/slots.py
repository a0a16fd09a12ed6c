"""How snapshots lie in memory: two slots, of which one at least is whole or none has ever been.

The memory begins with one record per slot; the slots follow, of one size. A slot is filled while
its record is blank, and the record, with a sequence number and checksums of the slot and of itself,
is written last. So a process that dies at any moment leaves snapshots that are whole, or blank, or
that do not fit their checksums, and none of the last two is ever taken for a snapshot. Nothing here
needs PyTorch: the agent reads what a training process has left.

A snapshot is what a checkpoint's file holds: the header of `penstock.trainer.group.state_codec` and
the bytes of its tensors, in order, as parts of the slot.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgpack

SLOTS: Final = 2
HEAD_BYTES: Final = 4096
"""What the records have of the memory; the slots begin on a page."""
MAGIC: Final = b"PNSTKSN1"
_RECORD: Final = struct.Struct("<8sQQQQI")  # magic, sequence, step, bytes of parts and index, CRC
_CHECK: Final = struct.Struct("<I")  # CRC of the record
_RECORD_BYTES: Final = HEAD_BYTES // SLOTS
_CHUNK_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Snapshot:
    """One whole snapshot."""

    slot: int
    sequence: int
    step: int
    """Steps that the model has seen."""
    folder: str
    """Where checkpoints of the training are kept, and how many stay."""
    keep: int
    header: bytes
    parts: tuple[tuple[int, int], ...]
    """Where each tensor begins in the memory, and how many bytes it has."""
    job: str = ""
    """As which job its process writes to the folder (`penstock.job.folder_mark`)."""


@dataclass(frozen=True)
class Content:
    """What a slot is about to be the snapshot of."""

    step: int
    folder: str
    keep: int
    header: bytes
    parts: tuple[tuple[int, int], ...]
    """Where each tensor begins in the slot, and how many bytes it has."""
    job: str = ""


def capacity(memory_bytes: int) -> int:
    """Bytes of one slot in memory of this size."""
    return max(0, memory_bytes - HEAD_BYTES) // SLOTS


def start(slot: int, memory_bytes: int) -> int:
    """Where a slot begins."""
    return HEAD_BYTES + slot * capacity(memory_bytes)


def blank(memory: memoryview, slot: int) -> None:
    """Say that a slot holds no snapshot: before it is filled."""
    at = slot * _RECORD_BYTES
    memory[at : at + _RECORD_BYTES] = bytes(_RECORD_BYTES)


def index_of(content: Content) -> bytes:
    """What is written behind the parts of a slot."""
    index: bytes = msgpack.packb(
        {
            "folder": content.folder,
            "keep": content.keep,
            "header": content.header,
            "parts": content.parts,
            "job": content.job,
        }
    )
    return index


def commit(memory: memoryview, slot: int, content: Content, sequence: int) -> bool:
    """Make what was put into a slot its snapshot; False where there is no room for its index."""
    begin, room = start(slot, len(memory)), capacity(len(memory))
    used = max((at + size for at, size in content.parts), default=0)
    index = index_of(content)
    if used + len(index) > room:
        return False
    memory[begin + used : begin + used + len(index)] = index
    whole = memory[begin : begin + used + len(index)]
    record = _RECORD.pack(MAGIC, sequence, content.step, used, len(index), _checksum(whole))
    record += _CHECK.pack(zlib.crc32(record))
    at = slot * _RECORD_BYTES
    memory[at : at + len(record)] = record
    return True


def kept(memory: memoryview) -> list[tuple[int, int]]:
    """Sequence number and step of each slot, by its record alone; 0 and 0: it holds nothing."""
    records = (_record(memory, slot) for slot in range(SLOTS))
    return [(record[1], record[2]) if record is not None else (0, 0) for record in records]


def newest_sequence(memory: memoryview) -> int:
    """The highest sequence number; 0: there is no snapshot."""
    return max(kept(memory))[0]


def newest_step(memory: memoryview) -> int | None:
    """The step of the newest snapshot by the records alone; None: there is none."""
    sequence, step = max(kept(memory))
    return step if sequence else None


def newest(memory: memoryview) -> Snapshot | None:
    """The newest snapshot that is whole; reads it once."""
    order = sorted(enumerate(kept(memory)), key=lambda each: each[1], reverse=True)
    for slot, (sequence, _) in order:
        if sequence and (found := _read(memory, slot)) is not None:
            return found
    return None


def file_parts(memory: memoryview, snapshot: Snapshot) -> Iterator[Any]:
    """The bytes of a snapshot's tensors, one after the other."""
    for at, size in snapshot.parts:
        yield memory[at : at + size]


def _record(memory: memoryview, slot: int) -> tuple[Any, ...] | None:
    at = slot * _RECORD_BYTES
    raw = bytes(memory[at : at + _RECORD.size + _CHECK.size])
    if len(raw) < _RECORD.size + _CHECK.size:
        return None
    if _CHECK.unpack_from(raw, _RECORD.size)[0] != zlib.crc32(raw[: _RECORD.size]):
        return None
    record = _RECORD.unpack_from(raw)
    fits = record[3] + record[4] <= capacity(len(memory))
    return record if record[0] == MAGIC and record[1] > 0 and fits else None


def _read(memory: memoryview, slot: int) -> Snapshot | None:
    record = _record(memory, slot)
    if record is None:
        return None
    _, sequence, step, used, index_bytes, checksum = record
    begin = start(slot, len(memory))
    if _checksum(memory[begin : begin + used + index_bytes]) != checksum:
        return None
    try:
        index = msgpack.unpackb(memory[begin + used : begin + used + index_bytes])
        parts = tuple((begin + int(at), int(size)) for at, size in index["parts"])
        folder, keep, header = str(index["folder"]), int(index["keep"]), bytes(index["header"])
        job = str(index.get("job", ""))
    except (ValueError, TypeError, KeyError, msgpack.UnpackException):
        return None
    return Snapshot(slot, sequence, step, folder, keep, header, parts, job)


def _checksum(whole: memoryview) -> int:
    """CRC-32: against what is torn or overwritten by accident, which no enemy did."""
    value = 0
    for at in range(0, len(whole), _CHUNK_BYTES):
        value = zlib.crc32(whole[at : at + _CHUNK_BYTES], value)
    return value
