"""Two jobs share a cache that has room for one of their data sets: who waits most has it.

The one that computes long for each file comes first and fills the cache; then the other comes, that
does nothing but read. What both read of storage is counted by themselves and by the kernel.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.caching.daemons import Daemon, Files, daemon, make_files

WORK_SECONDS: Final = 0.02
"""On each file, of the job that computes: ten times what storage takes."""
LIMIT_SECONDS: Final = 90.0
ENOUGH: Final = 0.9
"""Of its data set, and the other has what it will have."""


class Job:
    """A program that reads epoch after epoch."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def epoch(self) -> dict[str, Any]:
        """What it says of its next epoch."""
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        """Have it end, after the epoch that it is in."""
        self._process.communicate(timeout=LIMIT_SECONDS)


@contextlib.contextmanager
def job(place: str, files: Files, seed: int, rate: float, work: float) -> Iterator[Job]:
    """A job, while it is needed."""
    command = [sys.executable, "-m", "benchmarks.cache_programs.epochs", place, str(files.folder)]
    command += [str(one) for one in (seed, rate, work)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Job(process)
        finally:
            process.kill()


def _share(one: Daemon, files: Files) -> float:
    return float(one.stat(files.folder)["held_bytes"] / files.total)


def worth_row(folder: Path, count: int, rate: float, seed: int) -> dict[str, Any]:
    """Both jobs on storage of this rate, with so many files each."""
    computes, waits = (make_files(folder / name, count, seed) for name in ("computes", "waits"))
    room = computes.total
    with (
        daemon(computes.folder, room, rate=rate, more=[f"--paths={waits.folder}"]) as one,
        job(one.place, computes, seed, rate, WORK_SECONDS) as first,
    ):
        for _ in range(2):
            alone = first.epoch()
        had = _share(one, computes)
        with job(one.place, waits, seed + 1, rate, 0.0) as second:
            begun = time.monotonic()
            before = second.epoch()
            epochs = 1
            while _share(one, waits) < ENOUGH and time.monotonic() - begun < LIMIT_SECONDS:
                second.epoch()
                epochs += 1
            moved = time.monotonic() - begun
            second.epoch()  # in which the last files may have been kept
            after = second.epoch()
            quota = one.stat(waits.folder)["quota_bytes"] or 0
            second.end()
            held = {"computes": _share(one, computes), "waits": _share(one, waits)}
            first.epoch()  # the one that it is in
            without = first.epoch()
            first.end()
        read = one.stat(computes.folder)
    return {
        "first_had": round(had, 3),
        "computes_holds": round(held["computes"], 3),
        "waits_holds": round(held["waits"], 3),
        "waits_quota": round(quota / waits.total, 3),
        "moved_seconds": round(moved, 1),
        "epochs_until": epochs,
        "waits_read_before": round(before["own_bytes"] / waits.total, 3),
        "waits_read_after": round(after["own_bytes"] / waits.total, 3),
        "waited_before": round(before["waited"], 3),
        "waited_after": round(after["waited"], 3),
        "computes_read_alone": round(alone["own_bytes"] / computes.total, 3),
        "computes_read_after": round(without["own_bytes"] / computes.total, 3),
        "computes_waits": read["waiting"],
    }
