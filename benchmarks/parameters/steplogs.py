"""The step logs of workers that train asynchronously: one line for each batch of each worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, order=True)
class Step:
    """One batch that was handed in: when, by which worker, how many servers there were, which."""

    time_seconds: float
    worker: int
    servers: int
    slot: int


def read_steps(folder: Path) -> list[Step]:
    """All steps that are in the logs now, oldest first."""
    return StepLog(folder).read()


def longest_gap(steps: Sequence[Step], begin: float, end: float) -> float:
    """The longest time between two steps, of any workers, that lies at least partly in a span."""
    gaps = [
        later.time_seconds - earlier.time_seconds
        for earlier, later in pairwise(steps)
        if later.time_seconds >= begin and earlier.time_seconds <= end
    ]
    return max(gaps, default=float("inf"))


def speed(steps: Sequence[Step], begin: float, end: float) -> float:
    """Steps per second of all workers together within a span."""
    return sum(begin <= step.time_seconds < end for step in steps) / (end - begin)


class StepLog:
    """The steps of one folder, read as they are written: each line is parsed once.

    A benchmark that reads a whole log again and again takes more of the machine the longer the job
    has been running.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: dict[Path, int] = {}
        self._steps: list[Step] = []

    def read(self) -> list[Step]:
        """All steps so far, oldest first."""
        found = []
        for path in self._folder.glob("steps-*.jsonl"):
            worker = int(path.stem.split("-")[1])
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole + newline)
            for line in whole.splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # its worker was killed while it wrote
                found.append(Step(entry["time"], worker, entry["world"], entry["step"]))
        if found:
            self._steps = sorted(self._steps + found)
        return self._steps
