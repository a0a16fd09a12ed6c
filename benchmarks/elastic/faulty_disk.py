"""A disk of a few megabytes that is full, read-only or hangs for a while; it takes root.

A file system of its own in a file, so that the kernel itself does what is asked for: no room is
left, it is mounted again for reading, or it is frozen, so that whoever writes waits in the kernel
and cannot be killed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from typing import Final

from benchmarks.elastic.cluster import wait

_BUSY_SECONDS: Final = 30.0
_BLOCK_BYTES: Final = 4096


def can_mount() -> bool:
    """Whether such a disk can be had here."""
    tools = all(map(which, ("mkfs.ext4", "mount", "umount", "fsfreeze")))
    return tools and os.geteuid() == 0 and Path("/dev/loop-control").exists()


class FaultyDisk:
    """One that is mounted; see `mounted_disk`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, seconds: float) -> None:
        """No byte is left for so long."""
        filler = self.folder / "filler"
        try:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(b"\0" * _BLOCK_BYTES):
                    pass
            time.sleep(seconds)
        finally:
            filler.unlink(missing_ok=True)

    def protect(self, seconds: float) -> None:
        """Nothing can be written for so long."""
        # Not while a file is open for writing.
        wait(lambda: _ran("mount", "-o", "remount,ro", self.folder), _BUSY_SECONDS, "it is idle")
        try:
            time.sleep(seconds)
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.folder], check=True)

    def hang(self, seconds: float) -> None:
        """Whoever writes waits for so long."""
        subprocess.run(["fsfreeze", "--freeze", self.folder], check=True)
        try:
            time.sleep(seconds)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", self.folder], check=True)


@contextmanager
def mounted_disk(folder: Path, megabytes: int) -> Iterator[FaultyDisk]:
    """Such a disk, mounted there until the end of the block.

    Raises:
        CalledProcessError: it cannot be had (`can_mount`).
    """
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    folder.mkdir()
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        yield FaultyDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _ran(*command: str | Path) -> bool:
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
