"""What the ranks of `benchmarks/dropin_programs` have written, and where a gap's time went.

A gap is the longest time without a step of any rank. Its timeline divides it at moments that the
processes of the new world note themselves, each when the last of them has reached it, so that the
parts add up to the gap:

1. detect and end: from the last step to the end of the last process of the old world, as the
   agents' logs have it (Penstock's alone; else it is part of the next one);
2. decide and spawn: to the start of the new world's last process;
3. interpreter: to the first line of the script;
4. import torch;
5. rendezvous: to the return of ``init_process_group``;
6. first step: checkpoint, DDP, and the step itself.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

WORLD_SECONDS: Final = 240.0
POLL_SECONDS: Final = 0.2
_MOMENTS: Final = ("spawned", "begun", "imported", "grouped")
_PARTS: Final = (
    "detect_and_end",
    "decide_and_spawn",
    "interpreter",
    "import_torch",
    "rendezvous",
    "first_step",
)
_ENDED: Final = re.compile(
    r"^(?:\S+ \S+ [FP] )?(\S+ \S+),(\d{3}) .*: world \d+ has ended", re.MULTILINE
)
"""In an agent's log; in that of a container behind the time, the stream and a tag."""


class Steps:
    """The files of all ranks in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[dict[str, Any]]:
        """Every step of every rank, in the order of time."""
        return sorted(_lines(self.folder, "steps-*.jsonl"), key=lambda step: float(step["time"]))

    def wait_for_world(
        self, size: int, after: float, alive: Callable[[], bool] = lambda: True
    ) -> bool:
        """Whether all ranks of a world of this size train that began after some time; waits for it.

        ``alive``: whether it may still come about; asked again and again.
        """
        deadline = time.time() + WORLD_SECONDS
        while time.time() < deadline:
            may_come = alive()
            lives = (_read(path) for path in self.folder.glob("steps-*.jsonl"))
            firsts = [life[0] for life in lives if life]
            new = [first for first in firsts if first["time"] > after and first["world"] == size]
            if {first["rank"] for first in new} == set(range(size)):
                return True
            if not may_come:
                return False
            time.sleep(POLL_SECONDS)
        return False

    def per_second(self, since: float, until: float) -> float:
        """Steps of all ranks together."""
        found = [step for step in self.all() if since <= step["time"] < until]
        return round(len(found) / (until - since), 1)

    def gap(self, since: float) -> tuple[float, float]:
        """When the longest time without any step began and ended, since some time."""
        times = [float(step["time"]) for step in self.all() if step["time"] > since - 1.0]
        pairs = itertools.pairwise(times)
        return max(pairs, key=lambda pair: pair[1] - pair[0], default=(since, since))

    def timeline(self, since: float) -> dict[str, float | None]:
        """The longest gap since some time and its parts, in seconds; see the module's docstring.

        ``world``: of how many processes the world is that ends it.
        """
        began, ended = self.gap(since)
        sizes = [step["world"] for step in self.all() if step["time"] == ended]
        gap = {"gap_seconds": round(ended - began, 2), "world": max(sizes, default=None)}
        return {**gap, **self._parts(began, ended)}

    def start_timeline(self, began: float) -> dict[str, float | None]:
        """The same of a first world, from its launch to the first step of its last rank."""
        firsts: dict[int, float] = {}
        for step in self.all():
            firsts.setdefault(step["rank"], float(step["time"]))
        ended = max(firsts.values())
        return {"start_seconds": round(ended - began, 2), **self._parts(began, ended)}

    def _parts(self, began: float, ended: float) -> dict[str, float | None]:
        """None of a part whose moments nobody noted."""
        starts = [
            start
            for start in _lines(self.folder, "starts-*.jsonl")
            if began <= start["grouped"] <= ended
        ]
        left = [moment for moment in self._ends() if began <= moment <= ended]
        moments: list[float | None] = [began, max(left, default=None)]
        moments += [max((start[name] for start in starts), default=None) for name in _MOMENTS]
        moments.append(ended)
        parts: dict[str, float | None] = {}
        before = began
        for name, moment in zip(_PARTS, moments[1:], strict=True):
            parts[name] = None if moment is None else round(moment - before, 2)
            before = before if moment is None else moment
        return parts

    def _ends(self) -> Iterator[float]:
        """When agents said that their processes of a world have ended."""
        for path in self.folder.rglob("*.log"):
            for found in _ENDED.finditer(path.read_text(errors="replace")):
                whole = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S"))
                yield whole + int(found[2]) / 1000


def _lines(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [line for path in folder.glob(pattern) for line in _read(path)]


def _read(path: Path) -> list[dict[str, Any]]:
    """What one process has written so far."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
