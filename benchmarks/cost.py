"""What data workers cost and save, by the model, beside what tf.data service has published.

    python -m benchmarks.cost --json

``dollars``: ResNet-50 for 112,320 steps on a TPU v2-8 at 4.5 $ an hour, alone at 1.75 steps/s and
with 16 workers and a dispatcher (0.08 $ an hour each) at 4.5 steps/s (SoCC 23, section 4.2).
``sweep``: model M1 of Fig. 9, for which the model is told two points of the paper: what one worker
makes (the point with 8 of them) and what the accelerator takes (the ideal). The others are
predicted, and each row says by how much the paper's own figure differs. No random number is drawn;
``--seed`` is there because every benchmark takes one.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.goals import at_most, report
from penstock.sim.sharing.tfdata import PRICES, STEPS
from penstock.throughput.decision.cost import cost_of
from penstock.throughput.limits.capacity import binding, bounds
from penstock.throughput.loop.prediction import whole_batches
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

PUBLISHED_DOLLARS: Final = {"colocated": (1.75, 0, 80.2), "16 workers": (4.5, 17, 40.6)}
"""Steps a second, machines of 0.08 $, dollars."""
M1_KNOWN: Final = (8, 0.3)
M1_ALONE: Final = 0.55
M1_IDEAL_GAIN: Final = 12.3
M1_PUBLISHED: Final = {16: 0.64, 64: 2.3, 128: 4.77}
DOLLARS_GOAL: Final = 0.1
SWEEP_GOAL: Final = 0.07


def dollars() -> list[dict[str, Any]]:
    """Equation 1, each row beside what the paper prints."""
    rows = []
    for name, (rate, machines, published) in PUBLISHED_DOLLARS.items():
        cost = cost_of(STEPS, rate, PRICES, clients=1, workers=machines)
        rows.append(
            {
                "what": name,
                "hours": round(cost.hours, 2),
                "training": round(cost.clients, 1),
                "workers": round(cost.workers, 1),
                "total": round(cost.total, 2),
                "published": published,
            }
        )
    return rows


def sweep() -> list[dict[str, Any]]:
    """Batches a second of M1 with a growing number of workers, all made by them."""
    workers, rate = M1_KNOWN
    ideal = M1_ALONE * M1_IDEAL_GAIN
    resources = Resources(cores=96, workers=1, data_workers=workers)
    profile = Profile(
        program="M1",
        batch_size=1,
        stages=(StageCost("all", "opaque", workers / rate),),
        step=Measured.given(1 / ideal),
        rate=Measured.given(M1_ALONE),
        stalled=1 - M1_ALONE / ideal,
        resources=resources,
    )
    rows = []
    for number, published in M1_PUBLISHED.items():
        there = replace(resources, data_workers=number)
        found = bounds(profile, there, whole_batches(profile, there, 1.0))
        predicted = min(found.values())
        rows.append(
            {
                "workers": number,
                "predicted": round(predicted, 3),
                "published": round(published, 3),
                "error": round(predicted / published - 1, 4),
                "binding": binding(found),
            }
        )
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The sweep as a picture, the paper's points beside it."""
    from penstock.sim.report.plot import Curve, Panel
    from penstock.sim.report.plot import draw as draw_panels

    numbers = [row["workers"] for row in rows]
    curves = [
        Curve("the model", numbers, [row["predicted"] for row in rows]),
        Curve("published", numbers, [row["published"] for row in rows], beside="the model"),
    ]
    panel = Panel("M1 of tf.data service, Fig. 9", "data workers", "batches/s", curves)
    draw_panels([panel], path)


def main() -> int:
    """Compute, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="nothing is drawn")
    parser.add_argument("--plot", type=Path, help="draw the sweep (.png, .svg, .pdf)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    costs, rates = dollars(), sweep()
    if options.plot is not None:
        draw(rates, options.plot)
    goals = [
        at_most(
            f"dollars beside the paper's, {row['what']}",
            DOLLARS_GOAL,
            round(abs(row["total"] - row["published"]), 3),
        )
        for row in costs
    ]
    worst = max(abs(row["error"]) for row in rates)
    goals.append(at_most("M1 with more workers, worst error", SWEEP_GOAL, worst))
    result = {"seed": options.seed, "load": os.getloadavg()[0], "dollars": costs, "sweep": rates}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
