"""Checkpoints: model, optimizer, ledger position and sample counts in one file, or none of them.

A checkpoint is written to a temporary file, synced, and renamed; its last bytes are a checksum of
all the others. So a file under its final name is whole or detectably damaged, and a damaged one is
passed over for the one before it, in one line of the log. Writing happens on a thread of its own,
from a copy of the state that was taken between two steps, as
`penstock.trainer.group.host_copies` makes it; the newest ``keep`` files stay. A disk that is full
or hangs holds nothing up: the write is tried again, and those before it stay.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from penstock.crds.conditions import JobReason
from penstock.data.memory import read_memory
from penstock.job import atomic_file
from penstock.job.atomic_file import DIGEST_BYTES
from penstock.job.protocol import MAX_TEXT, Trouble
from penstock.job.storage import (
    LAST_SECONDS,
    RETRY_SECONDS,
    Backoff,
    cause,
    not_on_disk,
    not_saved,
)
from penstock.trainer.group.cuda_copies import CudaTransport
from penstock.trainer.group.host_copies import Copier, PinnedCopier
from penstock.trainer.group.state_codec import PackedState, StateError, pack, payload_bytes, unpack

logger = logging.getLogger(__name__)

BUSY_SECONDS: Final = 60.0
"""How long a save waits, once, for the write of the one before it."""
POLL_SECONDS: Final = 0.2
PINNED_SHARE: Final = 4
"""The part of the pod's memory that may be page-locked for copies of the state: a quarter."""

MAGIC: Final = b"PNSTKCP1"
_HEAD: Final = struct.Struct("<8sQQ")  # magic, bytes of the header, bytes of the tensors


class CheckpointError(Exception):
    """A checkpoint that cannot be written or read; says which file and why."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint on disk: its file and the number of steps that its model has seen."""

    path: Path
    step: int


class CheckpointDir:
    """The checkpoints of one job in one folder. Only the group's first member writes there.

    One state at most is being written and one waits, the newest. Where a write fails, or hangs, the
    training goes on: `trouble` says so, and what waits is tried again.
    """

    def __init__(
        self,
        folder: Path,
        keep: int = 3,
        write_seconds: float = LAST_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        copier: Copier | None = None,
    ) -> None:
        self.folder = folder
        self._files = atomic_file.Series(folder, "step", keep)
        self._write_seconds = write_seconds
        self._busy_seconds = busy_seconds
        self._retry_seconds = retry_seconds
        self._copier = copier or PinnedCopier(CudaTransport(), _most_pinned_bytes)
        self._changed = threading.Condition()
        self._writer: threading.Thread | None = None
        self._pending: tuple[int, PackedState] | None = None  # not on disk yet
        self._began: float | None = None  # when the write that is going on did
        self._waited_for = False  # the training has
        self._failure = ""  # of the newest write
        self._hangs = False  # said in the log
        self._fault: Exception | None = None  # of this program

    def check_folder(self) -> None:
        """Raises CheckpointError: nothing can be written there, which is better known at once."""
        try:
            self._files.check_folder()
        except atomic_file.FolderError as error:
            raise CheckpointError(str(error)) from error

    def list(self) -> list[Saved]:
        """All checkpoints by name, newest first; not checked."""
        return [Saved(path, step) for path, step in self._files.list()]

    def newest(self) -> Saved | None:
        """The newest checkpoint that is whole; damaged ones are named in the log."""
        for saved in self.list():
            try:
                _verify(saved.path)
            except CheckpointError as error:
                logger.warning("%s: taking the one before it", error)
                continue
            return saved
        return None

    def save(self, step: int, state: Any, *, wait: bool = False) -> None:
        """Write a state as of ``step``; the state is copied before this returns.

        A writer that is still busy with the last one is waited for, but not for long: what waits
        gives way to what is newer.

        Raises:
            StateError: the state has no plain form.
            CheckpointError: with ``wait``, as `wait` does; or the writer itself is at fault.
        """
        with self._changed:
            self._check_fault()
            if self._failure:
                self._drop()  # there is no memory for three
        packed = pack(state, self._copier)
        with self._changed:
            if not self._waited_for:
                self._waited_for = not self._changed.wait_for(self._is_free, self._busy_seconds)
            self._pending = (step, packed)
            if self._writer is None:
                self._writer = threading.Thread(
                    target=self._write_all, name="penstock-checkpoint", daemon=True
                )
                self._writer.start()
            self._changed.notify_all()
        if wait:
            self.wait()

    @property
    def trouble(self) -> str:
        """Why checkpoints are not written at present; empty: nothing is known to fail."""
        with self._changed:
            if self._failure:
                return not_saved(self.folder, self._failure)
            late = self._began is not None and time.monotonic() - self._began > self._write_seconds
            return not_saved(self.folder, _hanging(self._write_seconds)) if late else ""

    def look(self) -> None:
        """Say once in the log where a write hangs; to be called now and then."""
        trouble = self.trouble
        with self._changed:
            if trouble and not self._failure and not self._hangs and self._began is not None:
                logger.warning("%s", trouble)
                self._hangs = True

    def troubles(self) -> tuple[Trouble, ...]:
        """The same for the trainer."""
        if not (trouble := self.trouble):
            return ()
        return (Trouble(reason=JobReason.CHECKPOINTS_NOT_WRITTEN, message=trouble[:MAX_TEXT]),)

    def wait(self, waits_on: Callable[[], bool] = lambda: True) -> None:
        """Wait until the last checkpoint is on disk: it is tried again for a while.

        Args:
            waits_on: called a few times a second meanwhile; False: wait no longer.

        Raises:
            CheckpointError: it is not, and the time is over; says where, why and what to do.
        """
        deadline = time.monotonic() + self._write_seconds
        while True:
            with self._changed:
                written = self._changed.wait_for(self._is_idle, POLL_SECONDS)
                self._check_fault()
                why = self._failure or _hanging(self._write_seconds)
            if written or not waits_on():
                return
            if time.monotonic() > deadline:
                self.forget()
                raise CheckpointError(not_on_disk(self.folder, why))

    def abandon(self, seconds: float) -> None:
        """Wait for so long at most; what is not on disk by then may be lost, and this is said."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle() or bool(self._failure), seconds)
            if not self._is_idle():
                logger.warning("left while a checkpoint was being written: the one before it stays")
            self._drop()

    def forget(self) -> None:
        """Write nothing more of what waits: somebody else has newer checkpoints to write."""
        with self._changed:
            self._drop()
            self._failure = ""

    # ------------------------------------------------------------------ with the lock

    def _is_idle(self) -> bool:
        return self._pending is None and self._began is None

    def _is_free(self) -> bool:
        """Whether nothing is held up by a newer state: idle, or failing anyway."""
        return self._is_idle() or (self._began is None and bool(self._failure))

    def _drop(self) -> None:
        self._pending = None
        self._changed.notify_all()

    def _check_fault(self) -> None:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise CheckpointError(f"a checkpoint was not written: {fault!r}") from fault

    # ------------------------------------------------------------------ on the thread

    def _write_all(self) -> None:
        """Write what waits, again and again where that fails, until nothing does."""
        backoff = Backoff(self._retry_seconds)
        while (taken := self._take()) is not None:
            error: Exception | None = None
            try:
                self._write(*taken)
            except Exception as caught:  # noqa: BLE001  (told to the training's thread)
                error = caught
            with self._changed:
                self._began, self._waited_for = None, False
                if error is None:
                    self._written(taken)
                elif isinstance(error, OSError | MemoryError):
                    backoff.failed()
                    self._failed(cause(error))
                    self._changed.wait_for(lambda: self._pending is not taken, backoff.pause)
                else:
                    self._fault, self._pending = error, None
                    self._changed.notify_all()

    def _take(self) -> tuple[int, PackedState] | None:
        with self._changed:
            if self._pending is None:
                self._writer = None
                return None
            self._began = time.monotonic()
            return self._pending

    def _written(self, taken: tuple[int, PackedState]) -> None:
        if self._failure or self._hangs:
            logger.info("checkpoints are written to %s again", self.folder)
        self._failure, self._hangs = "", False
        if self._pending is taken:
            self._pending = None
        self._changed.notify_all()

    def _failed(self, why: str) -> None:
        if not self._failure and self._pending is not None:
            logger.warning("%s", not_saved(self.folder, why))
        if self._pending is not None:
            self._failure = why
        self._changed.notify_all()

    def _write(self, step: int, packed: PackedState) -> None:
        write(self._files.path(step), packed)
        try:
            self._files.discard_older(step)
        except OSError as error:
            logger.warning("older checkpoints in %s stay: %s", self.folder, cause(error))


def _most_pinned_bytes() -> int:
    """What copies from a GPU may take of the pod's memory for as long as it lives."""
    return read_memory().limit // PINNED_SHARE


def _hanging(seconds: float) -> str:
    return (
        f"a write is not done within {seconds:.0f} s, the disk hangs or is too slow for the model"
    )


def write(path: Path, packed: PackedState) -> None:
    """Write one checkpoint so that it is there as a whole or not at all. Raises OSError."""
    packed.wait()
    head = _HEAD.pack(MAGIC, len(packed.header), packed.payload_bytes)
    atomic_file.write(path, itertools.chain((head, packed.header), map(_bytes_of, packed.tensors)))


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
