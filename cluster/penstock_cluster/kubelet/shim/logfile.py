"""A container's log on disk: one line per line of output, stamped, bounded by rotation.

The format is that of the container runtimes: ``TIME STREAM TAG TEXT`` with tag F for a full line
and P for a part of one. At ``max_bytes`` the file becomes ``NAME.1`` and a new one begins, so a
container's log never holds more than twice that.
"""

from __future__ import annotations

import contextlib
import os
import time

LONGEST_LINE_BYTES = 16 * 1024


class LogFile:
    """Takes chunks of bytes from both streams and writes stamped lines."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  closed by close()
        self._size = self._file.tell()
        self._rests = {"stdout": b"", "stderr": b""}

    def write(self, stream: str, chunk: bytes) -> None:
        """Write the full lines of ``chunk``; the rest waits for its end."""
        *lines, rest = (self._rests[stream] + chunk).split(b"\n")
        prefix = f"{_timestamp()} {stream} ".encode()
        out = bytearray()
        for line in lines:
            while len(line) > LONGEST_LINE_BYTES:
                out += prefix + b"P " + line[:LONGEST_LINE_BYTES] + b"\n"
                line = line[LONGEST_LINE_BYTES:]  # noqa: PLW2901  cut piece by piece
            out += prefix + b"F " + line + b"\n"
        while len(rest) >= LONGEST_LINE_BYTES:
            out += prefix + b"P " + rest[:LONGEST_LINE_BYTES] + b"\n"
            rest = rest[LONGEST_LINE_BYTES:]
        self._rests[stream] = rest
        self._append(out)

    def close(self) -> None:
        """Write what has no line end yet, and close."""
        for stream, rest in self._rests.items():
            if rest:
                self._append(f"{_timestamp()} {stream} P ".encode() + rest + b"\n")
        self._file.close()

    def _append(self, data: bytes | bytearray) -> None:
        """Write whole lines, beginning a new file whenever the next would not fit."""
        while data:
            room = self._max_bytes - self._size
            end = len(data) if len(data) <= room else data.rfind(b"\n", 0, max(0, room)) + 1
            if end == 0 and self._size == 0:
                end = data.index(b"\n") + 1  # one line longer than a whole file
            if end == 0:
                self._rotate()
                continue
            # A full disk must not stop the container; its output is lost.
            with contextlib.suppress(OSError):
                self._file.write(data[:end])
            self._size += end
            data = data[end:]

    def _rotate(self) -> None:
        self._file.close()
        os.replace(self._path, f"{self._path}.1")
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115  closed by close()
        self._size = 0


def _timestamp() -> str:
    nanoseconds = time.time_ns()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(nanoseconds // 1_000_000_000))
    return f"{whole}.{nanoseconds % 1_000_000_000:09d}Z"
