"""What the processes of a program write down while it is profiled: a file for each, JSON in lines.

A process that is killed leaves whole lines and perhaps a torn last one, which is passed over. Each
file has a bound, and the folder too; what comes after it is not written. The folder holds a byte
that says, by being there, that nothing more is wanted. Others say to the makers of a loader which
phase has begun.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.throughput.observations.session import Phase

FOLDER: Final = "PENSTOCK_PROFILE"
"""The variable that names the folder to the program and all its processes."""
MOST_BYTES: Final = 32 << 20
"""Of one process, and of all of them together as one begins: workers may be made for each epoch."""
MOST_IN_ALL: Final = 128 << 20
MOST_FILES: Final = 10_000
_DONE: Final = "done"
_PREFIX: Final = "process-"


class RecordFile:
    """That of one process."""

    def __init__(self, folder: Path, process: int) -> None:
        """A folder that is gone or full is no reason for a program to end: nothing is written."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._file = os.open(folder / f"{_PREFIX}{process}.jsonl", flags, 0o600)
            self._is = _identity(self._file)
        except OSError:
            self._file = -1
        self._left = min(MOST_BYTES, room_in(folder))

    def write(self, record: dict[str, Any]) -> None:
        """Add a line; a full disk ends the recording, not the program."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        self._left -= len(line)
        if self._file < 0 or self._left < 0:
            return
        try:
            if _identity(self._file) == self._is:
                if os.write(self._file, line) < len(line):  # what came after it would be torn, too
                    self.close()
            else:  # a program that closes what it does not know may have a file of its own there
                self._file = -1
        except OSError:
            self.close()

    def close(self) -> None:
        """Nothing more comes."""
        with contextlib.suppress(OSError):
            if self._file >= 0 and _identity(self._file) == self._is:
                os.close(self._file)
        self._file = -1


def room_in(folder: Path) -> int:
    """Bytes that may still be written down; 0: none, or there is no folder."""
    left, files = MOST_IN_ALL, MOST_FILES
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            left, files = left - entry.stat().st_size, files - 1
    return max(0, left) if files >= 0 else 0


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def read_records(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that was written, with the process that wrote it."""
    for path in sorted(folder.glob(f"{_PREFIX}*.jsonl")):
        name = path.stem.removeprefix(_PREFIX)
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    continue
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield name, record


def finish(folder: Path) -> None:
    """Say that nothing more is wanted."""
    with contextlib.suppress(OSError):
        (folder / _DONE).touch(exist_ok=True)


def is_finished(folder: Path) -> bool:
    """Whether anybody has said so."""
    return (folder / _DONE).exists()


def begin(phase: Phase, folder: Path, trainer: str, loader: int) -> None:
    """Say to the makers of a loader that a phase has begun that asks something of them."""
    with contextlib.suppress(OSError):
        _mark(phase, folder, trainer, loader).touch(exist_ok=True)


def has_begun(phase: Phase, folder: Path, trainer: str, loader: int) -> bool:
    """Whether it has."""
    return _mark(phase, folder, trainer, loader).exists()


def _mark(phase: Phase, folder: Path, trainer: str, loader: int) -> Path:
    return folder / f"{phase}-{trainer}-{loader}"
