"""What the partition of a training step does, and what it costs.

    python -m benchmarks.partition --json

``cuts``: the cheapest cut of 2,000 random graphs beside all others, and how long large graphs take
(`benchmarks.partitioning.cuts`). ``workloads``: unmodified programs under ``--partition auto``, bit
by bit beside themselves, and what of them moved (`benchmarks.partitioning.workloads`); alone with
``--workload all``, or names of some. ``kills``: with ``--kills 50`` that many processes of a
partitioned training are killed and join again, while it is recorded, compared and on
(`benchmarks.partitioning.kills`), half as many more in an elastic session, and nothing else is
done. ``session``: with ``--kills 25 --session`` that many in an elastic session alone
(`benchmarks.partitioning.session_kills`). ``found``, only with ``--part found``: how much of what
could move does, bytes, and the cost of matching calls (`benchmarks.partitioning.found`). ``rates``:
GoldMiner's Fig. 10, only where it is asked for with ``--part rates``
(`benchmarks.partitioning.rates`). Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from benchmarks.goals import Goal, report
from benchmarks.partitioning import cuts, found, kills, rates, session_kills, workloads

Part = Callable[[argparse.Namespace], tuple[Any, list[Goal]]]

PARTS: Final[dict[str, Part]] = {
    "cuts": lambda options: cuts.run(options.seed, options.graphs),
    "workloads": lambda options: workloads.run(
        options.workload or ["all"], options.steps, options.epochs
    ),
    "found": lambda options: found.run(options.workload or ["all"], options.steps),
    "kills": lambda options: kills.run(options.kills, options.seed),
    "session": lambda options: session_kills.run(options.kills, options.seed),
    "rates": lambda options: rates.run(options.workload or ["all"], options.steps, options.repeats),
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
    parser.add_argument("--kills", type=int, default=0, help="of processes of one program")
    parser.add_argument(
        "--session", action="store_true", help="with --kills: in an elastic session alone"
    )
    parser.add_argument("--graphs", type=int, default=cuts.GRAPHS, help="of the part cuts")
    parser.add_argument("--repeats", type=int, default=2, help="of the part rates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.kills < 0:
        parser.error(f"--kills: {options.kills}; must be at least 0")
    if not options.kills and (options.session or {"kills", "session"} & {*(options.part or ())}):
        parser.error("--kills: how many processes to kill, as in --kills 25, is not said")
    result: dict[str, Any] = {"seed": options.seed, "load": os.getloadavg()[0]}
    goals: list[Goal] = []
    for name in options.part or _parts(options):
        result[name], its = PARTS[name](options)
        goals += its
    return report(result, goals, as_json=options.json)


def _parts(options: argparse.Namespace) -> list[str]:
    """What is meant where no part is named."""
    kills = "session" if options.session else "kills"
    meant = {"workloads": options.workload, kills: options.kills}
    return [name for name in meant if meant[name]] or ["cuts", "workloads"]


if __name__ == "__main__":
    sys.exit(main())
