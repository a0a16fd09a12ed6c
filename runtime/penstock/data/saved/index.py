"""The index of a folder of saved batches: which files belong to it, and what each must hold; pure.

A file counts only once the index names it, and the index is replaced as a whole. It holds a digest
of each file's table, which holds one of each batch, so that whatever was cut, changed or put in
another's place is found before a batch of it is given.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from penstock.data.errors import SavedError

INDEX_NAME: Final = "index.json"
FORMAT: Final = "penstock saved batches"
VERSION: Final = 1
MAX_INDEX_BYTES: Final = 64 << 20
MAGIC: Final = b"PenstockBatches1"
ALIGNMENT: Final = 64
_ROW: Final = struct.Struct("<QIQ16s")
_KEYS: Final = frozenset({"format", "version", "source", "complete", "shards", "check"})

Source = Mapping[str, str | int | None]
"""What the batches were made of, as far as it can be told by name."""


@dataclass(frozen=True, slots=True)
class Row:
    """Where a batch is in its file: its structure, and behind that its arrays."""

    offset: int
    structure_bytes: int
    body_bytes: int
    digest: bytes

    @property
    def stop(self) -> int:
        """The first byte behind it."""
        return self.offset + self.structure_bytes + self.body_bytes


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: the batches from ``first`` on, and the digest of its table."""

    name: str
    first: int
    batches: int
    bytes: int
    digest: str

    @property
    def stop(self) -> int:
        """The first batch behind it."""
        return self.first + self.batches

    @property
    def table_bytes(self) -> int:
        """Of the table, with which the file ends."""
        return self.batches * _ROW.size


@dataclass(frozen=True, slots=True)
class Index:
    """All files of a folder, in the order of their batches."""

    source: Source
    shards: tuple[Shard, ...] = ()
    complete: bool = False

    @property
    def batches(self) -> int:
        """How many there are."""
        return self.shards[-1].stop if self.shards else 0

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(shard.bytes for shard in self.shards)

    def with_shard(self, shard: Shard) -> Index:
        """With one more file behind the others."""
        assert shard.first == self.batches, "files follow one another"
        return replace(self, shards=(*self.shards, shard))


def shard_name(first: int) -> str:
    """The name of the file whose first batch is that."""
    return f"batches-{first:010d}.bin"


def digest_of(structure: bytes, parts: list[Any], size: int) -> bytes:
    """Of one batch; ``parts`` are its bytes, in flat buffers of together ``size``."""
    found = blake2b(struct.pack("<IQ", len(structure), size), digest_size=16)
    found.update(structure)
    for part in parts:
        found.update(part)
    return found.digest()


def pack_table(rows: list[Row]) -> bytes:
    """The table of a file."""
    return b"".join(
        _ROW.pack(row.offset, row.structure_bytes, row.body_bytes, row.digest) for row in rows
    )


def table_digest(first: int, table: bytes) -> str:
    """The digest of a file that begins with that batch, by its table."""
    return blake2b(struct.pack("<Q", first) + table, digest_size=32).hexdigest()


def read_table(shard: Shard, table: bytes) -> list[Row]:
    """The rows of a table that a file ends with.

    Raises:
        ValueError: it is not the one that the index has the digest of, or makes no sense.
    """
    if len(table) != shard.table_bytes or table_digest(shard.first, table) != shard.digest:
        raise ValueError("its digest is another than the index has")
    rows = [Row(*fields) for fields in _ROW.iter_unpack(table)]
    at = len(MAGIC)
    for row in rows:
        if row.offset < at or row.stop > shard.bytes - shard.table_bytes:
            raise ValueError("its batches lie outside of it")
        at = row.stop
    return rows


def write_index(index: Index) -> bytes:
    """The index as the bytes of its file."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "source": dict(index.source),
        "complete": index.complete,
        "shards": [asdict(shard) for shard in index.shards],
    }
    content["check"] = _check_of(content)
    return json.dumps(content, indent=1).encode() + b"\n"


def read_index(content: bytes) -> Index:
    """The index that `write_index` wrote.

    Raises:
        SavedError: it is none, was changed, or is of another version; says what is wrong with it.
    """
    try:
        told = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SavedError(f"it is cut, or no index: {error}") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise SavedError("it is no index of saved batches")
    if told.get("version") != VERSION:
        raise SavedError(f"version: {told.get('version')!r}; this release reads {VERSION}")
    check = told.pop("check", None)
    if told.keys() | {"check"} != _KEYS or check != _check_of(told):
        raise SavedError("it was changed after it was written")
    try:
        shards = tuple(_shard(shard) for shard in told["shards"])
        index = Index(dict(told["source"]), shards, told["complete"] is True)
    except (TypeError, ValueError) as error:
        raise SavedError(f"it cannot be read: {error}") from error
    at = 0
    for shard in shards:
        room = shard.bytes - shard.table_bytes - len(MAGIC)
        if shard.first != at or shard.batches < 1 or room < 0 or shard.name != shard_name(at):
            raise SavedError(f"shards: {shard.name} is not what follows batch {at}")
        at = shard.stop
    return index


def _shard(told: Any) -> Shard:
    """Raises TypeError for what is none."""
    shard = Shard(**told)
    for name, kind in (("name", str), ("first", int), ("batches", int), ("bytes", int)):
        if type(getattr(shard, name)) is not kind:
            raise TypeError(f"shards: {name}: {getattr(shard, name)!r}; must be a {kind.__name__}")
    return shard


def _check_of(content: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
