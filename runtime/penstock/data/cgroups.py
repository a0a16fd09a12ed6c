"""Where the limits of this process's pod are written: its cgroups, of both versions.

They are read at the path that ``/proc/self/cgroup`` names, in the groups above it, and at the mount
point itself, which is all that most containers see.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")


def folders_v2(root: Path, proc: Path) -> Iterator[Path]:
    """Of the unified hierarchy."""
    for line in lines(proc / "self/cgroup"):
        if line.startswith("0::"):
            for mount in (root, root / "unified"):
                yield from _upwards(mount, line[3:])


def folders_v1(root: Path, proc: Path, controller: str) -> Iterator[Path]:
    """Of one controller of version 1."""
    for line in lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "", "")
        if controller in controllers.split(","):
            yield from _upwards(root / controller, path)


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The folder of a cgroup and of all that it is in, as far as they are to be seen here."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        folder = mount.joinpath(*parts[:count])
        if folder.is_dir():
            yield folder


def number(path: Path) -> int | None:
    """The number that a file begins with."""
    found = lines(path)
    return int(found[0]) if found and found[0].strip().isdecimal() else None


def table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = (line.split() for line in lines(path))
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdecimal()}


def lines(path: Path) -> list[str]:
    """None, if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
