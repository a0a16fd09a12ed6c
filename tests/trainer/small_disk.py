"""A disk that is really full: a few pages in memory, and a file that takes them all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLER = "filler"


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of so many kilobytes, mounted there until the end of the block."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room that is left, down to the last byte; the file to remove for making some."""
    filler = folder / FILLER
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError as error:
                assert error.errno == 28  # noqa: PT017  (what is asked for)
    return filler


def leave(folder: Path, size: int) -> Path:
    """Leave room for so many bytes, to the page; the file to remove for making more."""
    found = os.statvfs(folder)
    taken = found.f_bavail * found.f_frsize - size
    filler = folder / FILLER
    filler.write_bytes(bytes(taken))
    return filler


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing can be written to a small disk within the block, as where a system found an error."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
