"""Samples that cost what a case says, here or in a data worker.

Two kinds. *Permits*: a sample takes a time, during which one of so many permits is held: as many as
there are cores where it is made, so that machines of any size are had on two cores. *Files*: those
of `benchmarks.stalls_programs`, read, decoded and transformed on real cores. In both a sample that
is made elsewhere may have to pass a thin link: one permit, held as long as its bytes take; and a
storage may be slow for everybody: likewise.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.utils.data import Dataset

from benchmarks.stalls_programs.train import Files

SIDE = "OFFLOAD_SIDE"


@cache
def _pipe(path: str, process: int) -> int:
    """Of this process: a fork has its own end."""
    return os.open(path, os.O_RDWR)


@contextmanager
def permit(folder: str, name: str) -> Iterator[None]:
    """Hold one of the permits of that name: a byte of a named pipe."""
    pipe = _pipe(f"{folder}/{name}", os.getpid())
    os.read(pipe, 1)
    try:
        yield
    finally:
        os.write(pipe, b".")


def settle(folder: str, permits: dict[str, int], limit_seconds: float = 2.0) -> None:
    """Wait until all permits are back; what died with one has its permit made good."""
    until = time.monotonic() + limit_seconds
    for name, count in permits.items():
        pipe = _pipe(f"{folder}/{name}", os.getpid())
        while (missing := count - _held(pipe)) > 0 and time.monotonic() < until:
            time.sleep(0.005)
        if missing > 0:
            os.write(pipe, b"." * missing)


def _held(pipe: int) -> int:
    found: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
    return found


@dataclass
class Placed(Dataset):
    """Samples with what it costs to make them where they are made.

    Attributes:
        folder: of the permits.
        seconds: of a core for a sample of permits; 0: its files are real.
        files: of real samples.
        link_seconds: of the link, for a sample that is made elsewhere.
        storage_seconds: of a storage that all read from, for a sample, wherever it is made.
        slowness: of a core elsewhere, beside one here.
        stored: a file that is read past the page cache for each sample; "": none is.
    """

    folder: str
    seconds: float = 0.0
    files: Files | None = None
    link_seconds: float = 0.0
    storage_seconds: float = 0.0
    slowness: float = 1.0
    stored: str = ""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        remote = os.environ.get(SIDE) == "remote"
        if self.stored:
            read_cold(self.stored, index)
        if self.storage_seconds:
            with permit(self.folder, "storage"):
                time.sleep(self.storage_seconds)
        if self.files is not None:
            sample: torch.Tensor = self.files[index]
        else:
            slower = self.slowness if remote else 1.0
            with permit(self.folder, "remote" if remote else "local"):
                time.sleep(self.seconds * slower * _uneven(index))
            sample = torch.full((256,), float(remote))
        if remote and self.link_seconds:
            with permit(self.folder, "link"):
                time.sleep(self.link_seconds)
        return sample


def _uneven(index: int) -> float:
    """Samples differ, evenly spread from 0.8 to 1.2 of their mean, and each always as much."""
    return 0.8 + 0.4 * ((index * 2654435761) % 4096) / 4095


def read_cold(path: str, index: int, size: int = 1 << 20) -> None:
    """Read a piece of a file from its storage, and leave nothing of it in memory."""
    with Path(path).open("rb", buffering=0) as file:
        offset = index * size % (os.fstat(file.fileno()).st_size - size)
        os.posix_fadvise(file.fileno(), offset, size, os.POSIX_FADV_DONTNEED)
        file.seek(offset)
        file.read(size)
        os.posix_fadvise(file.fileno(), offset, size, os.POSIX_FADV_DONTNEED)
