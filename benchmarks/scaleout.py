"""An unmodified program with more and more data workers: GoldMiner's Fig. 9 and Table 3.

    python -m benchmarks.scaleout --json

``penstock run --data-workers N`` has a recommender's program (`benchmarks.scaleout_programs`) whose
samples take 16 times as long as its step. ``fraction_of_linear``: its steps per second by N times
those with one data worker. ``speed_up``: by those of the program alone. ``cost_less``: what a step
costs less, where a data worker has one core and a core the price that it has in the paper's
Table 3: a machine of 64 for 1 / 8.9 of the price of the machine that trains.

``--work sleeps`` (the default where there are fewer cores than processes) has samples take their
time asleep: it measures what the data plane adds, and not the cores.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.goals import Goal, at_least, report
from benchmarks.programs import PENSTOCK, answer_of

PROGRAM: Final = Path(__file__).parent / "scaleout_programs" / "clicks.py"
SAMPLE_SECONDS: Final = 0.01
CORE_PRICE: Final = 1 / 8.9 / 64
"""By the price of the machine that trains."""
PUBLISHED: Final = {"speed_up": 12.1, "cost_less": 0.88, "cores": 256}
"""Of DeepFM, with four machines more."""
LINEAR_GOAL: Final = 0.95
LIMIT_SECONDS: Final = 300.0
COUNTS: Final = (1, 2, 4, 8, 14)


def rate(count: int, work: str, seconds: float, seed: int) -> dict[str, Any]:
    """With so many data workers; 0: the program alone."""
    program = [sys.executable, str(PROGRAM), "--work", work, "--makers", str(count)]
    program += ["--sample-seconds", str(SAMPLE_SECONDS), "--seconds", str(seconds)]
    program += ["--seed", str(seed)]
    if count:
        program = [PENSTOCK, "run", "--data-workers", str(count), "--", *program]
    found: dict[str, Any] = answer_of(program, LIMIT_SECONDS)
    return found


def run(
    counts: list[int], work: str, seconds: float, seed: int
) -> tuple[dict[str, Any], list[Goal]]:
    """The figures, and their goals."""
    alone = rate(0, work, seconds, seed)["rate"]
    rows: list[dict[str, Any]] = []
    for count in counts:
        found = rate(count, work, seconds, seed)
        speed_up = found["rate"] / alone
        rows.append(
            {
                "data_workers": count,
                "steps_per_second": round(found["rate"], 2),
                "fraction_of_linear": round(
                    found["rate"] / (rows[0]["steps_per_second"] * count / counts[0])
                    if rows
                    else 1.0,
                    3,
                ),
                "speed_up": round(speed_up, 2),
                "cost_less": round(1 - (1 + count * CORE_PRICE) / speed_up, 3),
                "made_here": found["made_here"],
            }
        )
    goals = [
        at_least(
            f"{row['data_workers']} data workers: of linear", LINEAR_GOAL, row["fraction_of_linear"]
        )
        for row in rows
    ]
    last = rows[-1]
    if last["data_workers"] >= COUNTS[-1]:
        most = PUBLISHED["speed_up"]
        goals.append(at_least("speed-up over the program alone", most, last["speed_up"]))
    return {"work": work, "alone_steps_per_second": round(alone, 2), "rows": rows}, goals


def main() -> int:
    """Run it and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=COUNTS[-1], help="at most so many")
    parser.add_argument("--work", choices=("sleeps", "computes"))
    parser.add_argument("--seconds", type=float, default=6.0, help="of which each rate is")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the order")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.workers < 1:
        parser.error(f"--workers: {options.workers}; must be at least 1")
    counts = sorted({*(one for one in COUNTS if one <= options.workers), options.workers})
    cores = len(os.sched_getaffinity(0))
    work = options.work or ("computes" if cores > options.workers + 1 else "sleeps")
    load = os.getloadavg()[0]
    figures, goals = run(counts, work, options.seconds, options.seed)
    result = {"seed": options.seed, "load": load, "cores": cores, "published": PUBLISHED, **figures}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
