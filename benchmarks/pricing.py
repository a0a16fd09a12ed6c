"""What the same work costs where the Brain plans all jobs together with a price, and each alone.

``python -m benchmarks.pricing --json``

1,000 jobs on clusters that have all, three quarters, half and a third of what the jobs want; 200
small cases held against the optimum. It is ``penstock sim pricing`` at that size: the page
docs/operations/cost.md says what is assumed. Goals are for the cluster with half: 20 % less cost at
no less work, whichever way work of different jobs is added up; within 3 % of the optimum in the
worst case; every job has at least its least configuration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from os import getloadavg
from typing import Final

from benchmarks.goals import Goal, report
from penstock.brain.pricing.problem import Prices
from penstock.sim.pricing.experiment import goals_of, jobs_of, rows_of, smalls_of

PRICES: Final = Prices(core_hour=0.03, gib_hour=0.004, accelerator_hour=2.4)
"""The example of the Brain's configuration."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--small", type=int, default=200, help="cases held against the optimum")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    load = round(getloadavg()[0], 1)
    jobs = jobs_of(options.jobs, options.seed, PRICES, options.processes)
    rows, smalls = rows_of(jobs, options.seed), smalls_of(jobs, options.small, options.seed)
    goals = [
        Goal(goal.name, goal.goal, goal.got, goal.ok)
        for goal in goals_of(rows, smalls, options.jobs)
    ]
    figures = {
        "seed": options.seed,
        "load": load,
        "jobs": options.jobs,
        "prices": asdict(PRICES),
        "rows": [asdict(row) for row in rows],
        "small": [asdict(one) for one in smalls],
    }
    return report(figures, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
