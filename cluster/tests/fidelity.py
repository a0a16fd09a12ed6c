"""How faithful the embedded cluster is: ``python -m cluster.tests.fidelity --json``.

Replays every recorded scenario and counts the steps whose answers are equal in every compared
part. Exits 1 when a difference is not listed in ``cluster/tests/golden/deviations.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from cluster.tests.golden.deviations import DEVIATIONS
from cluster.tests.golden.player import Outcome
from cluster.tests.golden.recordings import names
from cluster.tests.golden.replaying import replay, unlisted


def measure(scenarios: Sequence[str]) -> tuple[dict[str, Any], list[Outcome]]:
    """The summary, and the outcomes of the steps that are not equal."""
    outcomes = [outcome for name in scenarios for outcome in replay(name)]
    differing = [outcome for outcome in outcomes if outcome.differences]
    listed = [
        {
            "scenario": entry.scenario,
            "steps": list(entry.steps),
            "at": list(entry.at),
            "reason": entry.reason,
        }
        for entry in DEVIATIONS
        if entry.scenario in scenarios
    ]
    summary = {
        "scenarios": len(scenarios),
        "steps": len(outcomes),
        "equal": len(outcomes) - len(differing),
        "listed_deviations": listed,
        "unlisted_deviations": [
            {"scenario": outcome.scenario, "step": outcome.number, "at": unlisted(outcome)}
            for outcome in differing
            if unlisted(outcome)
        ],
    }
    return summary, differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document only")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="default: all of them")
    arguments = parser.parse_args()
    summary, differing = measure(arguments.scenarios or names())
    if arguments.json:
        print(json.dumps(summary, indent=1))
    else:
        for outcome in differing:
            print(f"{outcome.scenario} {outcome.number}: {outcome.about}")
            for difference in outcome.differences:
                print(f"    {difference}")
        print(f"{summary['equal']} of {summary['steps']} steps are equal")
    return 1 if summary["unlisted_deviations"] else 0


if __name__ == "__main__":
    sys.exit(main())
