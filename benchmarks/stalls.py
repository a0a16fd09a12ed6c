"""How near the predictions of `penstock profile` come to what programs then do.

    python -m benchmarks.stalls --json
    python -m benchmarks.stalls --planted --json

Three programs with real input work (`stalls_programs/train.py`: JPEG files, arrays, text) on real
cores, under a real DataLoader. Each is profiled in one configuration of cores, workers and share of
its files in memory (the others are read from this machine's disk each time), which ``--seed``
draws, and asked what it would do in others, also with a disk that the kernel slows down; then it
runs so, without the profiler. ``error`` is the predicted rate by the measured one, less one;
``inside`` whether the measured rate is in the predicted interval. Configurations take turns; each
of ``--rounds`` rounds has a profile of its own, and the figures are those of the round with the
median error. ``yardstick`` has each program in the configuration that was profiled, in turns with
the others: what the machine makes of one and the same program from round to round. DS-Analyzer has
an error of at most 4 % for one program and one dimension (PVLDB 14(5), Fig. 11). ``--planted`` is
`planted_stalls`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median, median_low
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks import planted_stalls
from benchmarks.goals import Goal, at_least, at_most, report
from benchmarks.programs import answer_of, profiling
from benchmarks.slowed_disk import can_slow, slowed_disk
from penstock.throughput.loop.prediction import Prediction, predict
from penstock.throughput.profiles.profile import Profile, loads
from penstock.throughput.profiles.resources import Resources

PROGRAM: Final = Path(__file__).with_name("stalls_programs") / "train.py"
KINDS: Final = {"jpeg": 12.0, "arrays": 25.0, "text": 20.0}
"""Milliseconds of training for a batch."""
CONFIGURATIONS: Final = ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (2, 4))
"""Cores and workers."""
CALIBRATED_IN: Final = ((2, 1), (2, 2))
CACHED: Final = (0.25, 0.5, 0.75, 1.0)
"""Share of the files that stay in memory."""
STORAGES: Final = (4e6, 16e6)
"""Bytes a second of the slowed disk."""
MEDIAN_GOAL: Final = 0.03
WORST_GOAL: Final = 0.08
RUN_SECONDS: Final = 120.0


class Configuration(NamedTuple):
    """What a program runs with; ``storage``: bytes a second, 0: as fast as it is."""

    cores: int
    workers: int
    cached: float
    storage: float = 0.0

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.workers} workers, {self.cached:.0%} cached"


def command(folder: Path, kind: str, there: Configuration) -> list[str]:
    """The program, kept to some of the cores."""
    allowed = ",".join(str(one) for one in sorted(os.sched_getaffinity(0))[: there.cores])
    program = [sys.executable, str(PROGRAM), "--folder", str(folder / kind), "--kind", kind]
    program += ["--workers", str(there.workers), "--step-ms", str(KINDS[kind])]
    program += ["--cached", str(there.cached)]
    return ["taskset", "-c", allowed, *program]


def run(folder: Path, kind: str, there: Configuration) -> dict[str, float]:
    """What the program says of itself."""
    program = command(folder, kind, there)
    with ExitStack() as stack:
        if there.storage:
            program = [*stack.enter_context(slowed_disk(folder, there.storage)), *program]
        found: dict[str, float] = answer_of(program, RUN_SECONDS)
    return found


def profiled(folder: Path, kind: str, there: Configuration) -> Profile:
    """The profile of one run."""
    path = folder / f"{kind}.json"
    program = command(folder, kind, there)
    place, program = program[:3], program[3:]
    answer_of([*place, *profiling(path, program, "--batches", "120")], RUN_SECONDS)
    return loads(path.read_text())


def held_out(calibrated: Configuration, storages: Sequence[float]) -> list[Configuration]:
    """All that differs from the profiled one in cores and workers, the cache, or the disk."""
    places = [calibrated._replace(cores=one, workers=two) for one, two in CONFIGURATIONS]
    caches = [calibrated._replace(cached=one) for one in CACHED]
    least = min(calibrated.cached, max(one for one in CACHED if one < 1))
    disks = [calibrated._replace(cached=least, storage=one) for one in storages]
    return [one for one in (*places, *caches, *disks) if one != calibrated]


def asked(profile: Profile, calibrated: Configuration, there: Configuration) -> Resources:
    """The resources to ask the profile about."""
    found = replace(profile.resources, cores=there.cores, workers=there.workers)
    if there.cached != calibrated.cached and profile.storage is not None:
        found = replace(found, cache_bytes=there.cached * profile.storage.total_bytes)
    return replace(found, storage_bytes_per_second=there.storage or None)


def judged(
    there: Configuration, found: Sequence[Prediction], rates: Sequence[float]
) -> dict[str, Any]:
    """The round with the median error."""
    errors = [p.rate / rate - 1 for p, rate in zip(found, rates, strict=True)]
    error = median_low(errors)
    shown, rate = found[errors.index(error)], rates[errors.index(error)]
    return {
        "cores": there.cores,
        "workers": there.workers,
        "cached": there.cached,
        "storage_mb_s": there.storage / 1e6 or None,
        "predicted": round(shown.rate, 1),
        "low": round(shown.low, 1),
        "high": round(shown.high, 1),
        "measured": round(rate, 1),
        "error": round(error, 4),
        "inside": shown.low <= rate <= shown.high,
        "binding": shown.binding,
    }


def again(found: Sequence[Prediction], rates: Sequence[float]) -> dict[str, Any]:
    """What was profiled, all rounds: ``spread`` is the most by the least, less one."""
    return {
        "predicted": [round(one.rate, 1) for one in found],
        "measured": [round(one, 1) for one in rates],
        "spread": round(max(rates) / min(rates) - 1, 4),
    }


def main() -> int:
    """Profile, predict, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--planted", action="store_true", help="programs whose stalls are known")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < max(cores for cores, _ in CONFIGURATIONS):
        parser.error("two cores are needed")
    if options.planted:
        return planted_stalls.main(options.seed, as_json=options.json)
    source = random.Random(options.seed)
    load = [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    yardstick: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        storages = STORAGES if can_slow(folder) else ()
        if not storages:
            print("no rows of slower disks: that takes root and cgroup blkio", file=sys.stderr)
        for kind in options.kinds.split(","):
            calibrated = Configuration(*source.choice(CALIBRATED_IN), source.choice(CACHED))
            run(folder, kind, calibrated)  # the files are written, and in memory
            others = held_out(calibrated, storages)
            everywhere = [*others, calibrated]
            rates: dict[Configuration, list[float]] = {one: [] for one in everywhere}
            found: dict[Configuration, list[Prediction]] = {one: [] for one in everywhere}
            for _ in range(options.rounds):
                profile = profiled(folder, kind, calibrated)
                for there in source.sample(everywhere, len(everywhere)):
                    found[there].append(predict(profile, asked(profile, calibrated, there)))
                    rates[there].append(run(folder, kind, there)["rate"])
            start = {"program": kind, "profiled": str(calibrated)}
            yardstick.append(start | again(found.pop(calibrated), rates.pop(calibrated)))
            rows += [start | judged(there, found[there], rates[there]) for there in others]
    load.append(os.getloadavg()[0])
    off = [abs(row["error"]) for row in rows]
    goals: list[Goal] = [
        at_least("configurations", 12, len(rows)),
        at_most("median error", MEDIAN_GOAL, round(median(off), 4)),
        at_most("worst error", WORST_GOAL, max(off)),
    ]
    result = {"seed": options.seed, "load": load, "published": 0.04, "yardstick": yardstick}
    result["rows"] = rows
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
