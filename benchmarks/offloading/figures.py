"""FastFlow's figures 6, 8, 9 and 10 from what was measured, with its values beside ours.

The paper's are pictures without tables: published values are those that its text gives. Fig. 8, the
effect of the cut, is the model's.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.goals import Goal, at_least, equal
from benchmarks.offloading.cases import CORE_SECONDS, ENVIRONMENTS, FASTFLOW, RECEIVE, Workload
from benchmarks.offloading.judging import SHARES
from penstock.sim.report.plot import Curve, Panel, draw
from penstock.throughput.decision.offload import candidates
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile, Transport
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

PUBLISHED_BEST: Final = {("S", "7:7"): 0.5, ("S", "7:21"): 0.8, ("T", "7:PRD"): 0.3}
"""Best shares of FastFlow's Fig. 9, from its text."""
PUBLISHED_MOST: Final = ("S", "7:28", 4.34)
"""The greatest speed-up of its Fig. 6."""
NOT_MOVED: Final = (
    *((name, place) for name in "ML" for place in ("7:7", "7:14", "7:21", "7:28", "14:7")),
    ("G", "14:7"),
    ("R", "14:7"),
)
"""Where it offloads nothing (section 7.3)."""
NEAR: Final = 0.97
MOST_GOAL: Final = 3.9
_SMALL: Final = 0.25
"""Of a batch's bytes, those of the files that it is made of."""

Rows = list[dict[str, Any]]


def draw_figures(rows: Rows, folder: Path, *, figure_6: bool) -> None:
    """Write what the rows suffice for.

    Raises:
        SimulationError: matplotlib is not installed, or cannot write there.
    """
    if figure_6:
        draw(_figure_6(rows), folder / "figure-6.png")
        return
    draw(_figure_8(), folder / "figure-8.png")
    if swept := [row for row in rows if row["sweep"]]:
        draw(_figure_9(swept), folder / "figure-9.png")
        draw(_figure_10(swept), folder / "figure-10.png")


def shape_goals(rows: Rows) -> list[Goal]:
    """What Fig. 6 shows, as far as the rows have it."""
    gains = {(row["workload"], row["environment"]): row["rate"] / row["alone_rate"] for row in rows}
    kept = {(row["workload"], row["environment"]): row["chosen_workers"] for row in rows}
    goals = []
    name, place, published = PUBLISHED_MOST
    if (name, place) in gains:
        label = f"speed-up of {name} in {place} (published {published})"
        goals.append(at_least(label, MOST_GOAL, round(gains[name, place], 2)))
    moved = [f"{a} in {b}" for a, b in NOT_MOVED if kept.get((a, b))]
    goals.append(equal("offloaded where FastFlow does not", moved))
    falling = []
    for name in FASTFLOW:
        found = [gains[name, f"7:{n}"] for n in (7, 14, 21, 28) if (name, f"7:{n}") in gains]
        if any(after < NEAR * before for before, after in pairwise(found)):
            falling.append(name)
    goals.append(equal("slower with more elsewhere", falling))
    return goals


def _figure_6(rows: Rows) -> list[Panel]:
    panels = []
    places = list(dict.fromkeys(row["environment"] for row in rows))
    for name in dict.fromkeys(row["workload"] for row in rows):
        own = {row["environment"]: row for row in rows if row["workload"] == name}
        x = [float(places.index(place)) for place in own]
        curves = [
            Curve("Penstock", x, [row["rate"] / row["alone_rate"] for row in own.values()]),
            Curve(
                "FastFlow's rule",
                x,
                [row["fastflow_rate"] / row["alone_rate"] for row in own.values()],
            ),
        ]
        if name == PUBLISHED_MOST[0] and PUBLISHED_MOST[1] in own:
            at = float(places.index(PUBLISHED_MOST[1]))
            curves.append(Curve("published", [at], [PUBLISHED_MOST[2]], beside="Penstock"))
        panels.append(Panel(f"{name}: {', '.join(places)}", "environment", "speed-up", curves))
    return panels


def _figure_8() -> list[Panel]:
    """Epoch time by what is moved, relative to nothing moved, as the model has it."""
    panels = []
    for place in ("7:7", "7:PRD"):
        curves = []
        for name in "TGCSR":
            times = cut_times(FASTFLOW[name], place)
            curves.append(Curve(name, [float(i) for i in range(len(times))], list(times.values())))
        cuts = ", ".join(cut_times(FASTFLOW["T"], place))
        panels.append(Panel(f"{place}, by the model: {cuts}", "cut", "relative time", curves))
    return panels


def cut_times(workload: Workload, place: str) -> dict[str, float]:
    """Time of an epoch with the best share of each cut, by the model, beside none moved.

    A batch is read (a twentieth of its time, and a quarter of its bytes), prepared, and collated (a
    twentieth). Threads beyond the cores, which make FastFlow's p'3 slow, are not in the model.
    """
    environment = ENVIRONMENTS[place]
    size = workload.batch_bytes
    stages = (
        StageCost("read", "fetch", 0.05 * CORE_SECONDS, bytes_out=_SMALL * size),
        StageCost("prepare", "transform", 0.90 * CORE_SECONDS, bytes_out=size),
        StageCost("collate", "collate", 0.05 * CORE_SECONDS, bytes_out=size),
    )
    resources = Resources(
        cores=environment.local,
        workers=environment.local,
        data_workers=environment.remote,
        network_bytes_per_second=environment.link or 2.5e9,
    )
    profile = Profile(
        program=workload.name,
        batch_size=1,
        stages=stages,
        step=Measured.given(workload.step_seconds),
        rate=Measured.given(1.0),
        stalled=0.0,
        resources=resources,
        transport=Transport(receive_cpu_seconds=RECEIVE),
    )
    alone = min(environment.local / CORE_SECONDS, 1 / workload.step_seconds)
    found = {"nothing": 1.0}
    for one in candidates(profile, resources):
        found[one.placement.cut.name] = alone / one.rate
    return found


def _figure_9(rows: Rows) -> list[Panel]:
    panels = []
    for name in dict.fromkeys(row["workload"] for row in rows):
        curves = []
        for row in (one for one in rows if one["workload"] == name):
            place, rates = row["environment"], row["sweep"]
            curves.append(Curve(place, list(SHARES), [rates[0] / rate for rate in rates]))
            if (best := PUBLISHED_BEST.get((name, place))) is not None:
                y = [rates[0] / rates[round(10 * best)]]
                curves.append(Curve(f"{place}, published best", [best], y, beside=place))
        panels.append(Panel(name, "share made elsewhere", "time, by that of 0 %", curves))
    return panels


def _figure_10(rows: Rows) -> list[Panel]:
    x = [float(index) for index in range(len(rows))]

    def times(key: str) -> list[float]:
        return [row["best_rate"] / row[key] for row in rows]

    curves = [
        Curve("best that was found", x, [1.0] * len(rows)),
        Curve("Penstock", x, times("rate")),
        Curve("FastFlow's rule", x, times("fastflow_rate")),
    ]
    return [Panel("Time by the best, each case", "case, as in the rows", "relative time", curves)]
