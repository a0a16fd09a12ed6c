"""Checkpoints: model, optimizer, ledger position and sample counts in one file, or none of them.

A checkpoint is written to a temporary file, synced, and renamed; its last bytes are a checksum of
all the others. So a file under its final name is whole or detectably damaged, and a damaged one is
passed over for the one before it, in one line of the log. Writing happens on a thread of its own,
from a copy of the state that was taken between two steps; the newest ``keep`` files stay.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from penstock.trainer import sealed
from penstock.trainer.sealed import DIGEST_BYTES
from penstock.trainer.state import PackedState, StateError, pack, payload_bytes, unpack

LOG = logging.getLogger("penstock.checkpoint")

WRITE_SECONDS = 600.0
"""A write that takes longer is given up, with an error: the disk hangs."""

MAGIC = b"PNSTKCP1"
_HEAD = struct.Struct("<8sQQ")  # magic, bytes of the header, bytes of the tensors


class CheckpointError(Exception):
    """A checkpoint that cannot be written or read; says which file and why."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint on disk: its file and the number of steps that its model has seen."""

    path: Path
    step: int


class CheckpointDir:
    """The checkpoints of one job in one folder. Only the group's first member writes there."""

    def __init__(self, folder: Path, keep: int = 3, write_seconds: float = WRITE_SECONDS) -> None:
        self.folder = folder
        self._files = sealed.Series(folder, "step", keep)
        self._write_seconds = write_seconds
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None

    def list(self) -> list[Saved]:
        """All checkpoints by name, newest first; not checked."""
        return [Saved(path, step) for path, step in self._files.list()]

    def newest(self) -> Saved | None:
        """The newest checkpoint that is whole; damaged ones are named in the log."""
        for saved in self.list():
            try:
                _verify(saved.path)
            except CheckpointError as error:
                LOG.warning("%s: taking the one before it", error)
                continue
            return saved
        return None

    def save(self, step: int, state: Any, *, wait: bool = False) -> None:
        """Write a state as of ``step``; the state is copied before this returns.

        A writer that is still busy with the last one is waited for.

        Raises:
            CheckpointError: this or the last one could not be written.
            StateError: the state has no plain form.
        """
        packed = pack(state)
        self.wait()
        self._writer = threading.Thread(
            target=self._write, args=(step, packed), name="penstock-checkpoint", daemon=True
        )
        self._writer.start()
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk. Raises CheckpointError if it is not."""
        if self._writer is not None:
            self._writer.join(self._write_seconds)
            if self._writer.is_alive():
                raise CheckpointError(
                    f"a checkpoint in {self.folder} was not written within "
                    f"{self._write_seconds:.0f} s: its disk hangs, or is too slow for the model"
                )
            self._writer = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise CheckpointError(f"a checkpoint was not written: {failure}") from failure

    def abandon(self, seconds: float) -> None:
        """Wait for so long at most; what is not on disk by then may be lost, and this is said."""
        if self._writer is not None:
            self._writer.join(seconds)
            if self._writer.is_alive():
                LOG.warning("left while a checkpoint was being written: the one before it stays")

    def _write(self, step: int, packed: PackedState) -> None:
        try:
            write(self._files.path(step), packed)
            self._files.discard_older(step)
        except OSError as error:
            self._failure = error


def write(path: Path, packed: PackedState) -> None:
    """Write one checkpoint so that it is there as a whole or not at all. Raises OSError."""
    head = _HEAD.pack(MAGIC, len(packed.header), packed.payload_bytes)
    sealed.write(path, itertools.chain((head, packed.header), map(_bytes_of, packed.tensors)))


def read(path: Path) -> Any:
    """The state in a checkpoint.

    Raises:
        CheckpointError: the file is missing, cut off or damaged.
    """
    header, payload = _verify(path)
    try:
        flat = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if payload else _nothing()
        return unpack(header, flat)
    except StateError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _verify(path: Path) -> tuple[bytes, bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    if len(data) < _HEAD.size + DIGEST_BYTES:
        raise CheckpointError(f"{path}: cut off after {len(data)} bytes")
    magic, header_bytes, tensor_bytes = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise CheckpointError(f"{path}: not a checkpoint of Penstock")
    if len(data) != _HEAD.size + header_bytes + tensor_bytes + DIGEST_BYTES:
        raise CheckpointError(f"{path}: cut off after {len(data)} bytes")
    digest = hashlib.blake2b(data[:-DIGEST_BYTES], digest_size=DIGEST_BYTES).digest()
    if digest != data[-DIGEST_BYTES:]:
        raise CheckpointError(f"{path}: the checksum does not match, the file is damaged")
    start = _HEAD.size + header_bytes
    header = data[_HEAD.size : start]
    try:
        if payload_bytes(header) != tensor_bytes:
            raise CheckpointError(f"{path}: header and tensors do not fit each other")
    except StateError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return header, data[start : start + tensor_bytes]


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def _nothing() -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8)
