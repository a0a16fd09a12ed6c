"""The tables of sharing as pictures, what was published dashed beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sim.report.plot import Curve, Panel
from penstock.sim.sharing.experiment import Row
from penstock.sim.sharing.steps import StepRow
from penstock.sim.sharing.tfdata import CostRow, RateRow


def rules_panels(rows: Sequence[Row]) -> list[Panel]:
    """What is made by each rule with more jobs, a panel for each kind of group."""
    panels = []
    for kind in dict.fromkeys(row.speeds for row in rows):
        own = [row for row in rows if row.speeds == kind]
        jobs = [row.jobs for row in own]
        curves = [
            Curve("each alone", jobs, [row.alone for row in own]),
            Curve("common order", jobs, [row.memo for row in own]),
            Curve("common order, head owed", jobs, [row.owed for row in own]),
            Curve("sliding window (loses)", jobs, [row.sliding for row in own]),
            Curve("free order", jobs, [row.free for row in own]),
            Curve("least possible", jobs, [row.bound for row in own], beside="free order"),
        ]
        panels.append(Panel(kind, "jobs", "datasets made an epoch", curves))
    return panels


def figure_9_panel(rows: Sequence[RateRow]) -> Panel:
    """Batches a second with more data workers."""
    workers = [row.workers for row in rows]
    curves = [
        Curve("the model", workers, [row.batches_per_second for row in rows]),
        Curve("published", workers, [row.published for row in rows], beside="the model"),
    ]
    return Panel("M1, Fig. 9", "data workers", "batches a second", curves)


def figure_10_panel(rows: Sequence[CostRow]) -> Panel:
    """Cost of making by that of one job."""
    jobs = [row.jobs for row in rows]
    known = [row for row in rows if row.published_job_time is not None]
    curves = [
        Curve("A: shared", jobs, [row.shared for row in rows]),
        Curve("B: one pool, not shared", jobs, [row.unshared for row in rows]),
        Curve("C: a pool for each", jobs, [row.dedicated for row in rows]),
        Curve(
            "B, published",
            [row.jobs for row in known],
            [row.published_job_time or 0.0 for row in known],
            beside="B: one pool, not shared",
        ),
    ]
    return Panel("M4, Fig. 10", "jobs", "cost of making, by one job's", curves)


def figure_11_panel(rows: Sequence[StepRow]) -> Panel:
    """Speed-up of each model."""
    numbers = [float(row.model[1:]) for row in rows]
    curves = [
        Curve("simulated", numbers, [row.speedup for row in rows]),
        Curve("published", numbers, [row.published for row in rows], beside="simulated"),
    ]
    return Panel("M5 to M8, Fig. 11", "model", "speed-up of a step", curves)
