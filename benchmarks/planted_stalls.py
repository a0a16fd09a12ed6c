"""Whether `penstock profile` finds the stalls that were planted, beside other programs too.

    python -m benchmarks.stalls --planted --json

The program (`stalls_programs/planted.py`) reads, computes, collates and trains for times that are
its arguments, and writes down by itself in which of them its training waited. The profiler sees the
same batches of the same run: ``--batches 20`` is how many it measures after the loader's window was
filled twice, so that a difference is one of attribution. ``planted`` and ``found`` are shares of
the wall time of these batches; ``sum`` is all shares that were found and the training's own by the
program's clock, which is 1. The causes ``dataset`` and ``hand-over`` are compared together with
what the program calls the rest: nothing was planted there. Where it has more workers than cores,
or a hog beside it, a batch that is made and not there yet has no core to be handed over on: what is
more than where cores are free (`CALM`) was planted as ``too few cores``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks import programs
from benchmarks.goals import Goal, at_most, report
from benchmarks.programs import HOG, answer_of, profiling
from penstock.throughput.profiles.profile import Profile, loads

PROGRAM: Final = Path(__file__).with_name("stalls_programs") / "planted.py"
MEASURED: Final = 20
PREFETCH: Final = 2
SHARE_GOAL: Final = 0.03
SUM_GOAL: Final = 0.02
G_GOAL: Final = 0.03
RUN_SECONDS: Final = 180.0
CALM: Final = "training"
"""The case with cores to spare."""
_REST: Final = ("dataset", "hand-over", "rest")


@dataclass(frozen=True, slots=True)
class Case:
    """A program: milliseconds of a sample, and of a batch where so named."""

    name: str
    fetch: float = 0.0
    decode: float = 0.0
    augment: float = 0.0
    collate: float = 0.0
    step: float = 20.0
    workers: int = 0
    cores: int = 1

    def arguments(self) -> list[str]:
        """Of the program."""
        costs = ("fetch", "decode", "augment", "collate", "step")
        found = [part for cost in costs for part in (f"--{cost}-ms", str(getattr(self, cost)))]
        batches = self.warm_up + MEASURED + 5 * PREFETCH * max(1, self.workers)
        return [*found, "--workers", str(self.workers), "--batches", str(batches)]

    @property
    def warm_up(self) -> int:
        """Batches that the profiler does not measure."""
        return 2 * PREFETCH * self.workers + 2


CASES: Final = (
    Case("fetch", fetch=3.0),
    Case("prep", decode=2.0, augment=1.0),
    Case("collate", collate=40.0),
    Case("too few cores", decode=2.0, workers=4),
    Case("training", decode=0.2, step=40.0, workers=1, cores=2),
    Case("mixed, no workers", fetch=1.5, decode=1.0, augment=0.5, collate=15.0),
    Case("mixed, 1 worker", fetch=1.5, decode=1.0, augment=0.5, collate=15.0, workers=1),
    Case("mixed, 2 workers", fetch=3.0, decode=1.0, augment=1.0, collate=15.0, workers=2, cores=2),
)


@contextmanager
def hogs(cores: Sequence[int]) -> Iterator[None]:
    """Something else that always wants each of these cores."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.extend(subprocess.Popen(["taskset", "-c", str(core), *HOG]) for core in cores)
        yield
    finally:
        programs.kill(*running)


def profiled(case: Case, cores: Sequence[int]) -> tuple[Profile, list[dict[str, Any]]]:
    """What the profiler found in a run, and what the program wrote down of all its batches."""
    place = ["taskset", "-c", ",".join(str(core) for core in cores)]
    with TemporaryDirectory() as name:
        path = Path(name) / "profile.json"
        program = [sys.executable, str(PROGRAM), *case.arguments()]
        command = [*place, *profiling(path, program, "--batches", str(MEASURED))]
        batches: list[dict[str, Any]] = answer_of(command, RUN_SECONDS)
        return loads(path.read_text()), batches


def planted_shares(case: Case, batches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By cause, of the batches that the profiler measured; ``training`` is what is left."""
    first = case.warm_up
    measured = batches[first : first + MEASURED]
    wall = measured[-1]["returned"] - measured[0]["returned"]
    found: dict[str, float] = {}
    for one in measured[1:]:
        for cause, seconds in one["causes"].items():
            found[cause] = found.get(cause, 0.0) + seconds / wall
    found["training"] = 1 - sum(found.values())
    return found


def without_cores(planted: Mapping[str, float], usual: float) -> dict[str, float]:
    """Where cores are short, what a batch that is made takes beyond the ``usual`` had no core."""
    rest = planted.get("rest", 0.0)
    late = max(0.0, rest - usual)
    cores = planted.get("too few cores", 0.0) + late
    return {**planted, "rest": rest - late, "too few cores": cores}


def compared(case: Case, beside: str, profile: Profile, planted: Mapping[str, float]) -> list[Any]:
    """A row for every cause that there is."""
    found = {**profile.causes, "training": 1 - profile.stalled}
    names = [name for name in dict.fromkeys([*planted, *found]) if name not in _REST]
    pairs = {name: (planted.get(name, 0.0), found.get(name, 0.0)) for name in names}
    pairs["rest"] = (
        sum(planted.get(name, 0.0) for name in _REST),
        sum(found.get(name, 0.0) for name in _REST),
    )
    return [
        {
            "case": case.name,
            "beside": beside,
            "cause": name,
            "planted": round(there, 4),
            "found": round(seen, 4),
            "error": round(seen - there, 4),
        }
        for name, (there, seen) in pairs.items()
        if max(there, seen) >= 0.001
    ]


def main(seed: int, *, as_json: bool) -> int:
    """Run every case alone and beside hogs, in an order that ``seed`` draws."""
    allowed = sorted(os.sched_getaffinity(0))
    load = [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    sums: list[dict[str, Any]] = []
    order = [(case, hog) for case in CASES for hog in (False, True)]
    runs: dict[tuple[str, bool], tuple[Case, Profile, dict[str, float], float]] = {}
    for case, hog in random.Random(seed).sample(order, len(order)):
        cores = allowed[: case.cores]
        with hogs(cores if hog else ()):
            profile, batches = profiled(case, cores)
        seconds = profile.batch_size / profile.rate.value
        runs[case.name, hog] = case, profile, planted_shares(case, batches), seconds
    _, _, calm, seconds = runs[CALM, False]
    usual = calm.get("rest", 0.0) * seconds
    for (name, hog), (case, profile, seen, seconds) in runs.items():
        short = hog or case.workers > case.cores
        planted = without_cores(seen, usual / seconds) if short else seen
        beside = "hog" if hog else "nobody"
        rows += compared(case, beside, profile, planted)
        sums.append(
            {
                "case": name,
                "beside": beside,
                "sum": round(sum(profile.causes.values()) + planted["training"], 4),
                "G": round(1 / profile.step.value, 2),
                "planted G": round(1000 / case.step, 2),
                "G error": round(case.step / 1000 / profile.step.value - 1, 4),
            }
        )
    load.append(os.getloadavg()[0])
    goals: list[Goal] = [
        at_most("worst share error", SHARE_GOAL, max(abs(row["error"]) for row in rows)),
        at_most("sum of shares", SUM_GOAL, round(max(abs(row["sum"] - 1) for row in sums), 4)),
        at_most(
            "G error, nobody beside",
            G_GOAL,
            max(abs(row["G error"]) for row in sums if row["beside"] == "nobody"),
        ),
    ]
    result = {"seed": seed, "load": load, "rows": rows, "sums": sums}
    return report(result, goals, as_json=as_json)
