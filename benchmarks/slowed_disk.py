"""A disk that gives a program so many bytes a second and no more, by the kernel's own throttling.

For benchmarks of programs that read files: they read as always, from a real disk. It takes root and
the blkio controller of cgroup v1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CONTROLLER: Final = Path("/sys/fs/cgroup/blkio")
_LIMIT: Final = "blkio.throttle.read_bps_device"


def can_slow(folder: Path) -> bool:
    """Whether the disk of a folder can be slowed down here."""
    device = _device(folder)
    if device is None or not os.access(CONTROLLER / _LIMIT, os.W_OK):
        return False
    try:
        with slowed_disk(folder, 1e9):
            return True
    except OSError:
        return False


@contextmanager
def slowed_disk(folder: Path, bytes_per_second: float) -> Iterator[list[str]]:
    """The beginning of a command whose reads from the folder's disk are so slow.

    Raises:
        OSError: it cannot be had (`can_slow`).
    """
    group = CONTROLLER / f"penstock-benchmark-{os.getpid()}"
    group.mkdir()
    try:
        (group / _LIMIT).write_text(f"{_device(folder)} {int(bytes_per_second)}")
        join = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
        yield ["sh", "-c", join, "sh"]
    finally:
        group.rmdir()


def _device(folder: Path) -> str | None:
    """The number of the whole disk that holds a folder; None where there is none."""
    number = folder.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    known = Path("/sys/dev/block") / name
    if not known.exists():
        return None  # memory, or a file system over the network
    if (known / "partition").exists():
        return (known.resolve().parent / "dev").read_text().strip()
    return name
