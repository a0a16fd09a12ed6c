"""How well finished jobs say what the next one takes: the held-out half of a trace, one by one.

    python -m benchmarks.forecast --json
    python -m benchmarks.forecast --traces ../shared/traces --json

``generated``: users' programs that run again and again, a few hundred of them, whose runs of one
program differ by a factor exp(N(0, spread)), each program with a spread of its own between 2 and 40
%; a tenth of all jobs is of a program that nobody has run. ``philly``: Microsoft's trace of 2017
(Jeon et al., ATC 2019), where it is there; it names no program, so that a job is known by its
virtual cluster and its GPUs alone. Each job of the second half is estimated from those that had
finished when it came. The error is that of the time from its start to its end, as a share of it.
When a job starts is not forecast (see `penstock.brain.service.forecasts`).
"""

from __future__ import annotations

import argparse
import csv
import heapq
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.goals import Goal, at_least, at_most, report
from penstock.brain.model.forecast import Expected, Finished, Forecaster
from penstock.brain.planning import Signature

PHILLY: Final = "philly_sia_pollux.csv"
PROGRAMS: Final = 300
HISTORY: Final = 2000
"""Finished jobs from which an answer is timed: as many as the Brain reads."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace; times in seconds."""

    signature: Signature
    start: float
    seconds: float


def generated(count: int, seed: int) -> list[Job]:
    """Jobs of programs that run again and again."""
    draws = random.Random(seed)
    programs = [
        (
            Signature(model=f"model-{n}", dataset=f"data-{n % 40}", user=f"user-{n % 60}"),
            draws.uniform(math.log(300), math.log(40_000)),
            math.exp(draws.uniform(math.log(0.02), math.log(0.4))),
        )
        for n in range(PROGRAMS)
    ]
    jobs, at = [], 0.0
    for number in range(count):
        at += draws.expovariate(1 / 60)
        signature, size, spread = draws.choice(programs)
        if draws.random() < 0.1:
            signature = Signature(model=f"new-{number}", dataset=signature.dataset)
            size = draws.uniform(math.log(300), math.log(40_000))
        jobs.append(Job(signature, at, math.exp(size + draws.gauss(0, spread))))
    return jobs


def philly(file: Path, count: int) -> list[Job]:
    """The newest jobs of Microsoft's trace, oldest first."""
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    jobs = [
        Job(
            Signature(model=f"gpus-{row['num_gpus']}", dataset="", user=row["cluster"]),
            datetime.fromisoformat(row["timestamp"]).timestamp(),
            float(row["duration"]),
        )
        for row in rows
        if float(row["duration"]) > 0
    ]
    return sorted(jobs, key=lambda job: job.start)[-count:]


def judged(name: str, jobs: Sequence[Job]) -> dict[str, Any]:
    """The second half of a trace, each job by those that had finished when it started."""
    known = Forecaster()
    running: list[tuple[float, int, Job, Expected | None]] = []
    errors: list[float] = []
    inside = with_range = unknown = 0
    widths: list[float] = []
    for number, job in enumerate(jobs):
        while running and running[0][0] <= job.start:
            end, _, ended, expected = heapq.heappop(running)
            known.learn(Finished(ended.signature, ended.start, end, ended.seconds), expected)
        expected = known.expected(job.signature)
        heapq.heappush(running, (job.start + job.seconds, number, job, expected))
        if number < len(jobs) // 2:
            continue
        found = known.estimate(job.signature)
        if found is None:
            unknown += 1
            continue
        errors.append(abs(found.value - job.seconds) / job.seconds)
        if found.low is not None and found.high is not None:
            with_range += 1
            inside += found.low <= job.seconds <= found.high
            widths.append(found.high / found.low)
    return {
        "trace": name,
        "jobs": len(jobs) - len(jobs) // 2,
        "unknown": unknown,
        "median_error": round(median(errors), 4),
        "with_range": with_range,
        "inside": round(inside / max(1, with_range), 4),
        "high_by_low": round(median(widths), 2),
    }


def answer_seconds(seed: int) -> float:
    """What an answer takes, from a history as long as the Brain reads, of five figures."""
    jobs = generated(HISTORY, seed)
    began = time.perf_counter()
    for _ in range(5):
        known = Forecaster.of(
            Finished(one.signature, one.start, one.start + one.seconds, one.seconds) for one in jobs
        )
        known.estimate(jobs[-1].signature)
    return time.perf_counter() - began


def goals_of(rows: Sequence[dict[str, Any]], seconds: float) -> list[Goal]:
    """What has to be reached."""
    goals = [at_most("seconds of an answer", 5.0, round(seconds, 3))]
    for row in rows:
        name = row["trace"]
        goals += [
            at_most(f"{name}: median error", 0.15, row["median_error"]),
            at_least(f"{name}: share in the range, at least", 0.87, row["inside"]),
            at_most(f"{name}: share in the range, at most", 0.93, row["inside"]),
            at_least(f"{name}: jobs with a range", 2000, row["with_range"]),
        ]
    return goals


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=12_000, help="of each trace")
    parser.add_argument("--traces", type=Path, help="folder of public traces")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.jobs < 100:
        parser.error("--jobs must be at least 100")
    rows = [judged("generated", generated(options.jobs, options.seed))]
    if options.traces is not None:
        file = options.traces / PHILLY
        if not file.is_file():
            parser.error(f"--traces: there is no {file}: fetch it, or leave the option out")
        rows.append(judged("philly", philly(file, options.jobs)))
    seconds = answer_seconds(options.seed)
    result = {"seed": options.seed, "load": os.getloadavg()[0], "rows": rows}
    return report(result, goals_of(rows, seconds), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
