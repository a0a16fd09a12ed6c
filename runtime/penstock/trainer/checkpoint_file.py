"""One checkpoint as a file: written as a whole or not at all, read once and checked meanwhile."""

from __future__ import annotations

import itertools
import os
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

import torch

from penstock.job import atomic_file
from penstock.job.atomic_file import DIGEST_BYTES
from penstock.trainer.group.state_codec import (
    PackedState,
    StateError,
    assemble,
    host_pieces,
    part_bytes,
)
from penstock.trainer.snapshot.file_head import HEAD, MAGIC, file_head
from penstock.trainer.snapshot.lent import Lent

_CHUNK_BYTES: Final = 4 << 20


class CheckpointError(Exception):
    """A checkpoint that cannot be written or read; says which file and why."""


def write(path: Path, packed: PackedState, lent: Lent | None = None) -> None:
    """Write one checkpoint so that it is there as a whole or not at all.

    Args:
        path: of the file.
        packed: the state.
        lent: where its tensors are the training's own.

    Raises:
        OSError: it cannot be written.
        WithdrawnError: they changed meanwhile.
    """
    packed.wait()
    head = file_head(packed.header, packed.payload_bytes)
    pieces = (
        piece.numpy() for tensor in packed.tensors for piece in host_pieces(tensor, _CHUNK_BYTES)
    )
    parts = pieces if lent is None else lent.watched(pieces)
    atomic_file.write(path, itertools.chain((head, packed.header), parts))


def read(path: Path) -> Any:
    """The state in a checkpoint, read once and checked meanwhile.

    Each tensor is read into memory of its own: there is never a second copy of any.

    Raises:
        CheckpointError: the file is missing, cut off or damaged.
    """
    try:
        with path.open("rb") as file:
            header = _read_header(path, file)
            digest = atomic_file.new_digest()
            digest.update(file_head(header, sum(part_bytes(header))))
            digest.update(header)
            parts = [_read_part(path, file, size, digest) for size in part_bytes(header)]
            if file.read(DIGEST_BYTES) != digest.digest():
                raise CheckpointError(f"{path}: the checksum does not match, the file is damaged")
        return assemble(header, parts)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except StateError as error:
        raise CheckpointError(f"{path}: {error}") from error


def check_size(path: Path) -> None:
    """Raises CheckpointError: this is no file of a whole checkpoint's size."""
    try:
        with path.open("rb") as file:
            _read_header(path, file)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error


def _read_header(path: Path, file: BufferedReader) -> bytes:
    """The header of a file of the right size. Raises CheckpointError, OSError."""
    size = os.fstat(file.fileno()).st_size
    if size < HEAD.size + DIGEST_BYTES:
        raise CheckpointError(f"{path}: cut off after {size} bytes")
    magic, header_bytes, tensor_bytes = HEAD.unpack(file.read(HEAD.size))
    if magic != MAGIC and magic[:-1] == MAGIC[:-1]:
        raise CheckpointError(
            f"{path}: of format {_version(magic)}, and this release reads {_version(MAGIC)}: take "
            "the release that wrote it, or another checkpoint_dir"
        )
    if magic != MAGIC:
        raise CheckpointError(f"{path}: not a checkpoint of Penstock")
    if size != HEAD.size + header_bytes + tensor_bytes + DIGEST_BYTES:
        raise CheckpointError(f"{path}: cut off after {size} bytes")
    header = file.read(header_bytes)
    try:
        if sum(part_bytes(header)) != tensor_bytes:
            raise CheckpointError(f"{path}: header and tensors do not fit each other")
    except StateError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return header


def _version(magic: bytes) -> str:
    return magic[-1:].decode("ascii", "backslashreplace")


def _read_part(path: Path, file: BufferedReader, size: int, digest: Any) -> torch.Tensor:
    part = torch.empty(size, dtype=torch.uint8)
    room = part.numpy().data
    for at in range(0, size, _CHUNK_BYTES):
        chunk = room[at : at + _CHUNK_BYTES]
        if file.readinto(chunk) != len(chunk):
            raise CheckpointError(f"{path}: cut off while it was read")
        digest.update(chunk)
    return part
