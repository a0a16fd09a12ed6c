"""What knowing where the time goes costs.

    python -m benchmarks.profile_cost --json

Four costs, each beside its goal. A running job measures every batch that it makes: microseconds of
a batch, and their share of making one of the programs of `benchmarks.stalls`. A session of
`penstock profile`: how much longer a program of so many batches takes with it than alone (medians
of ``--rounds``, taken in turns), as a share of a run of 20 minutes. What a profile takes for the
program as it is, beside the program alone: by what share the measured rate is less
(``measured_slower``, the median of the rounds), and the rate that the measured costs give for the
same resources (``model_slower``). A profile that is there already: reading it and asking it, as a
share of a run of 20 minutes. FastFlow's sessions take 0.06 to 3.1 % of
training, its stored profiles 0.002 to 0.53 % (PVLDB 16(5), Table 4).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.goals import Goal, at_most, report
from benchmarks.programs import answer_of, profiling
from benchmarks.stalls import KINDS, PROGRAM, RUN_SECONDS
from penstock.data.making import MakingClock
from penstock.throughput.decision.in_job import decide_in_job
from penstock.throughput.loop.prediction import predict
from penstock.throughput.profiles.profile import loads

RUN: Final = 20 * 60.0
BATCHES: Final = 60
STEADY_GOAL: Final = 0.005
SESSION_GOAL: Final = 0.01
RELOAD_GOAL: Final = 0.0005
SLOWER_GOAL: Final = 0.03
_TURNS: Final = 20_000


def of_a_batch(*, quick: bool) -> float:
    """Seconds that measuring one batch takes, where batches are quick, or long."""
    clock = MakingClock()
    begun = time.perf_counter()
    for _ in range(_TURNS):
        if not quick:
            clock.note_long()
        clock.begin()
        clock.end()
    seconds = (time.perf_counter() - begun) / _TURNS
    clock.close()
    return seconds


def run(folder: Path, kind: str, profile: Path | None) -> tuple[float, dict[str, float]]:
    """Seconds of the program, alone or profiled, and what it says of itself."""
    program = [sys.executable, str(PROGRAM), "--folder", str(folder / kind), "--kind", kind]
    program += ["--workers", "1", "--step-ms", str(KINDS[kind])]
    if profile is not None:
        program = profiling(profile, program, "--batches", str(BATCHES), "--no-storage")
    begun = time.perf_counter()
    found: dict[str, float] = answer_of(program, RUN_SECONDS)
    return time.perf_counter() - begun, found


def _slower(rates: list[float], alone: list[float]) -> float:
    """By what share, of the pairs of the rounds."""
    return round(median(1 - one / other for one, other in zip(rates, alone, strict=True)), 4)


def main() -> int:
    """Measure them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    source = random.Random(options.seed)
    load = [os.getloadavg()[0]]
    quick, long = of_a_batch(quick=True), of_a_batch(quick=False)
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for kind in options.kinds.split(","):
            path = folder / f"{kind}.json"
            run(folder, kind, None)  # the files are written, and in memory
            seen: dict[bool, list[float]] = {False: [], True: []}
            alone: list[float] = []
            measured: list[float] = []
            model: list[float] = []
            for _ in range(options.rounds):
                for profiled in source.sample([False, True], 2):
                    seconds, told = run(folder, kind, path if profiled else None)
                    seen[profiled].append(seconds)
                    if profiled:
                        found = loads(path.read_text())
                        measured.append(found.rate.value)
                        model.append(predict(found, found.resources).rate)
                    else:
                        alone.append(told["rate"])
            text = path.read_text()
            begun = time.perf_counter()
            profile = loads(text)
            decide_in_job(profile, 8)
            reload = time.perf_counter() - begun
            making = profile.batch_size * (profile.cpu_seconds + profile.blocked_seconds)
            extra = max(0.0, median(seen[True]) - median(seen[False]))
            rows.append(
                {
                    "program": kind,
                    "alone_seconds": round(median(seen[False]), 2),
                    "profiled_seconds": round(median(seen[True]), 2),
                    "alone_rate": round(median(alone), 1),
                    "measured_slower": _slower(measured, alone),
                    "model_slower": _slower(model, alone),
                    "session_share": round(extra / RUN, 5),
                    "reload_share": round(reload / RUN, 7),
                    "batch_seconds": round(making, 5),
                    "steady_share": round(long / making, 6),
                }
            )
    load.append(os.getloadavg()[0])
    goals: list[Goal] = [
        at_most("steady share", STEADY_GOAL, max(row["steady_share"] for row in rows)),
        at_most(
            "rate measured, off the program's alone",
            SLOWER_GOAL,
            max(abs(row["measured_slower"]) for row in rows),
        ),
        at_most("session share of 20 min", SESSION_GOAL, max(row["session_share"] for row in rows)),
        at_most("reload share of 20 min", RELOAD_GOAL, max(row["reload_share"] for row in rows)),
    ]
    result = {
        "seed": options.seed,
        "load": load,
        "published": {"session": [0.0006, 0.031], "reload": [0.00002, 0.0053]},
        "quick_batch_us": round(1e6 * quick, 2),
        "long_batch_us": round(1e6 * long, 2),
        "rows": rows,
    }
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
