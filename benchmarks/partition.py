"""What the partition of a training step does, and what it costs.

    python -m benchmarks.partition --json

``cuts``: the cheapest cut of 2,000 random graphs beside all others, and how long large graphs take
(`benchmarks.partitioning.cuts`). ``workloads``: unmodified programs under ``--partition auto``, bit
by bit beside themselves, and what of them moved (`benchmarks.partitioning.workloads`); alone with
``--workload all``, or names of some. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from benchmarks.goals import Goal, report
from benchmarks.partitioning import cuts, workloads

Part = Callable[[argparse.Namespace], tuple[Any, list[Goal]]]

PARTS: Final[dict[str, Part]] = {
    "cuts": lambda options: cuts.run(options.seed, options.graphs),
    "workloads": lambda options: workloads.run(
        options.workload or ["all"], options.steps, options.epochs
    ),
}
"""By the name of the key under which the figures are printed."""


def main() -> int:
    """Run the parts that were asked for and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all of them")
    names = ["all", *(one.name for one in workloads.WORKLOADS)]
    parser.add_argument("--workload", action="append", choices=names, help="only these programs")
    parser.add_argument("--steps", type=int, default=25, help="of an epoch of a program")
    parser.add_argument("--epochs", type=int, default=4, help="of a program")
    parser.add_argument("--graphs", type=int, default=cuts.GRAPHS, help="of the part cuts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    result: dict[str, Any] = {"seed": options.seed, "load": os.getloadavg()[0]}
    goals: list[Goal] = []
    wanted = ["workloads"] if options.workload and not options.part else options.part
    for name in wanted or PARTS:
        result[name], found = PARTS[name](options)
        goals += found
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
