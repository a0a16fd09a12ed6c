"""Leaks of five rates against the Brain's forecast: planned for before the kill, or not.

    python -m benchmarks.memory_forecast --json

Each run replays the samples of one worker that starts at a quarter of its memory and leaks until it
is killed, one sample every 15 s with noise, and asks the real `oom_worker` every 60 s, as an
administrator does, from a random phase. ``planned`` is the share of runs with a plan before the
kill, ``seconds_before`` the median of how long before. Healthy runs (steady use, a cache that fills
up to 90 %, up and down by a fifth) must get none within an hour. The memory is simulated; nothing
is killed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from benchmarks.goals import at_least, at_most, report
from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.algorithms.oom_worker import OomWorkerParams, plan
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    RankSample,
    RolePlan,
    RoleSpec,
    Sample,
)

LIMIT: Final = 8 * 1024**3
SAMPLE_SECONDS: Final = 15.0
ASK_SECONDS: Final = 60.0
LEAK_MINUTES: Final = (4, 8, 15, 30, 60)
"""From the start to the kill."""
NOISE: Final = 0.01
"""Standard deviation of a sample, of the limit."""
HOUR: Final = 3600.0
_JOB: Final = JobDescription(
    uid="leak", strategy=Strategy.ALL_REDUCE, roles={Role.WORKER: RoleSpec()}
)
_PLANS: Final = (
    AppliedPlan(
        applied_seconds=0.0,
        settled_seconds=0.0,
        roles={Role.WORKER: RolePlan(replicas=1)},
        stage=Stage.OPTIMIZE,
    ),
)
HEALTHY: Final[dict[str, Callable[[float], float]]] = {
    "steady": lambda _: 0.85,
    "cache": lambda at: 0.9 - 0.65 * math.exp(-at / 300),
    "up and down": lambda at: 0.75 + 0.1 * math.sin(at / 120),
}


def planned_at(share: Callable[[float], float], end: float, chance: random.Random) -> float | None:
    """When the worker that uses `share` (of its limit, by seconds) gets a plan before `end`."""
    samples: list[Sample] = []
    ask = chance.uniform(0, ASK_SECONDS)
    at = 0.0
    while at < end:
        used = min(1.0, max(0.01, share(at) + chance.gauss(0, NOISE)))
        row = RankSample(milli_cpu=1000, memory_bytes=round(used * LIMIT), memory_limit_bytes=LIMIT)
        samples.append(
            Sample(
                time_seconds=at,
                step=len(samples),
                steps_per_second=1.0,
                roles={Role.WORKER: {0: row}},
            )
        )
        while ask < min(at + SAMPLE_SECONDS, end):
            if ask >= at:
                history = History(now_seconds=ask, samples=tuple(samples), plans=_PLANS)
                if plan(history, _JOB, Limits(), OomWorkerParams()) is not None:
                    return ask
            ask += ASK_SECONDS
        at += SAMPLE_SECONDS
    return None


def leaks(runs: int, chance: random.Random) -> list[dict[str, Any]]:
    """One row for each rate."""
    rows = []
    for minutes in LEAK_MINUTES:
        kill = 60.0 * minutes
        found = [
            planned_at(lambda at, kill=kill: 0.25 + 0.75 * at / kill, kill, chance)  # type: ignore[misc]  # a default binds the loop's value
            for _ in range(runs)
        ]
        before = [kill - at for at in found if at is not None]
        rows.append(
            {
                "minutes_to_kill": minutes,
                "runs": runs,
                "planned": len(before) / runs,
                "seconds_before": round(median(before)) if before else None,
            }
        )
    return rows


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seed", type=int, default=1, help="of the noise")
    parser.add_argument("--runs", type=int, default=50, help="runs of each kind")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    rows = leaks(options.runs, chance)
    healthy = [
        {
            "use": name,
            "runs": options.runs,
            "planned": sum(
                planned_at(share, HOUR, chance) is not None for _ in range(options.runs)
            ),
        }
        for name, share in HEALTHY.items()
    ]
    goals = [
        at_least("least share planned before the kill", 0.95, min(row["planned"] for row in rows)),
        at_most("plans for healthy workers", 0, sum(row["planned"] for row in healthy)),
    ]
    result = {
        "seed": options.seed,
        "load": round(os.getloadavg()[0], 1),
        "leaks": rows,
        "healthy": healthy,
    }
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
