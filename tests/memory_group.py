"""A memory cgroup of a test's own, as a container has one; of either version."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

FOLDERS: Final = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))


@dataclass(frozen=True)
class MemoryGroup:
    """One that is there."""

    folder: Path

    def command(self, *command: str) -> list[str]:
        """The same command, run in this group."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    def kills(self) -> int:
        """How many processes the kernel has killed for want of memory."""
        for name in ("memory.oom_control", "memory.events"):
            if (self.folder / name).exists():
                rows = (line.split() for line in (self.folder / name).read_text().splitlines())
                return int({row[0]: row[1] for row in rows}["oom_kill"])
        raise AssertionError("this kernel does not count")


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group of this limit; the test is skipped where nobody may make one."""
    for parent in FOLDERS:
        limit = parent / "memory.limit_in_bytes"  # version 1
        if not limit.exists():
            limit = parent / "memory.max"
        made = parent / f"penstock-test-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            made.mkdir()
            (made / limit.name).write_text(str(limit_bytes))
        except OSError:
            if made.exists():
                made.rmdir()
            continue
        try:
            yield MemoryGroup(made)
        finally:
            _remove(made)
        return
    pytest.skip("needs the right to make a memory cgroup, which containers mostly have not")


def _remove(made: Path) -> None:
    deadline = time.monotonic() + 20
    while made.exists() and time.monotonic() < deadline:
        try:
            made.rmdir()
        except OSError:  # a process of it is still ending
            time.sleep(0.1)
