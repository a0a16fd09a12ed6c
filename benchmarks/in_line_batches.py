"""What a batch costs a program that makes its own, beside what a profile with a worker says of it.

    python -m benchmarks.in_line_batches --json

The programs of `benchmarks.stalls`, all files in memory, are profiled with one worker and without
any, in turns. CPU seconds are compared, not rates, so that other load on the machine counts on both
sides, if not alike. ``predicted_ms`` is what the model takes a batch to cost without workers from
the profile with one, ``measured_ms`` what it cost there; ``step_ms`` and ``released_ms`` are of the
training, with a worker, and what of it is giving back the shared memory of a batch. Medians of
``--rounds``; ``errors`` are those of each.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.goals import Goal, at_most, report
from benchmarks.programs import profiling
from benchmarks.stalls import KINDS, Configuration, command, run
from penstock.throughput.limits.making import stages_at
from penstock.throughput.profiles.profile import Profile, loads

CORES: Final = 2
ERROR_GOAL: Final = 0.03
RUN_SECONDS: Final = 300.0


def profiled(folder: Path, kind: str, workers: int) -> Profile:
    """The profile of one run, which ends with it."""
    path = folder / f"{kind}.json"
    program = command(folder, kind, Configuration(CORES, workers, 1.0))
    place, program = program[:3], program[3:]
    options = ("--stop", "--no-storage", "--batches", "60")
    subprocess.run(
        [*place, *profiling(path, program, *options)],
        capture_output=True,
        timeout=RUN_SECONDS,
        check=True,
    )
    return loads(path.read_text())


def cost_ms(profile: Profile, workers: int) -> float:
    """CPU milliseconds of a batch, made by so many workers or in line."""
    stages = stages_at(profile, replace(profile.resources, workers=workers))
    return 1e3 * profile.batch_size * sum(stage.cpu_seconds for stage in stages)


def main() -> int:
    """Profile with a worker and without."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the order of the turns")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    source = random.Random(options.seed)
    load = [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for kind in options.kinds.split(","):
            run(folder, kind, Configuration(CORES, 1, 1.0))  # the files are written, and in memory
            found: dict[int, list[Profile]] = {0: [], 1: []}
            for _ in range(options.rounds):
                for workers in source.sample([0, 1], 2):
                    found[workers].append(profiled(folder, kind, workers))
            predicted = [cost_ms(one, 0) for one in found[1]]
            measured = [cost_ms(one, 0) for one in found[0]]
            errors = [a / b - 1 for a, b in zip(predicted, measured, strict=True)]
            rows.append(
                {
                    "program": kind,
                    "by_worker_ms": round(median(cost_ms(one, 1) for one in found[1]), 3),
                    "predicted_ms": round(median(predicted), 3),
                    "measured_ms": round(median(measured), 3),
                    "error": round(median(errors), 4),
                    "errors": [round(one, 4) for one in errors],
                    "step_ms": round(1e3 * median(one.step.value for one in found[1]), 3),
                    "released_ms": round(1e3 * median(one.release_seconds for one in found[1]), 3),
                }
            )
    load.append(os.getloadavg()[0])
    goals: list[Goal] = [
        at_most("a batch in line is off by", ERROR_GOAL, max(abs(row["error"]) for row in rows))
    ]
    return report({"seed": options.seed, "load": load, "rows": rows}, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
