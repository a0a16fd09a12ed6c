"""Whether a call prints or writes to files: what it does beside what it returns.

The kernel counts what each thread writes. Sockets that are sent to and mapped memory are not in
that count, nor is what other threads write for the call; and a system without such counts (other
than Linux) says nothing.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

WRITES: Final = "it prints, or writes to files, which would be done elsewhere"
_COUNTS: Final = Path("/proc/thread-self/io")


class Writes:
    """Whether this thread writes, between this and the question."""

    def __init__(self) -> None:
        _flush()
        self._before = _written()

    def seen(self) -> bool:
        """Whether it has written anything, what standard output and error have held back too."""
        _flush()
        return _written() > self._before


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()


def _written() -> int:
    """Bytes that this thread has written so far; 0 where the system does not say."""
    try:
        fields = dict(line.split(b":") for line in _COUNTS.read_bytes().splitlines())
        return int(fields[b"wchar"])
    except (OSError, KeyError, ValueError):
        return 0
