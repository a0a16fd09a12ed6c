"""The tables and pictures of stages and of fragmented machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.scheduler.stage_tuning import StageTuning
from penstock.sim.cluster.experiments.fragments import (
    PUBLISHED_CPU_WAIT,
    PUBLISHED_NO_CPU,
    PUBLISHED_NO_GPU,
    Machines,
    Queueing,
)
from penstock.sim.cluster.experiments.stages import StagedRun
from penstock.sim.cluster.experiments.table4 import TRAINING_GPUS, Table4Row
from penstock.sim.report.goals import Goal
from penstock.sim.report.plot import Curve, Panel
from penstock.sim.report.tables import beside, show


def show_table4(rows: Sequence[Table4Row], intervals: Sequence[StageTuning]) -> None:
    """Speed and saving over 4 GPUs, and the tuning by stages."""
    title = "Speed and cost saved over 4 GPUs without data workers; in brackets GoldMiner, Table 4"
    columns = ["stages", "GPUs", "speed", "saved, %"]
    lines = [
        [
            row.stages,
            f"{TRAINING_GPUS}+{row.added_gpus}",
            beside(row.speed, row.published_speed),
            beside(
                100 * row.saving,
                None if row.published_saving is None else 100 * row.published_saving,
                1,
            ),
        ]
        for row in rows
    ]
    show(title, columns, lines)
    tuned = [
        [str(number), one.why, *(str(count) for count in one.workers)]
        for number, one in enumerate(intervals)
    ]
    show("Tuning by stages", ["interval", "why", "CPUs, units", "GPUs"], tuned)


def table4_panels(rows: Sequence[Table4Row]) -> list[Panel]:
    """Speed and saving by GPUs added."""
    panels = []
    for title, figure in (("Speed over 4 GPUs", 0), ("Cost saved", 1)):
        curves, published = [], []
        for stages in ("single", "multi"):
            group = [row for row in rows if row.stages == stages]
            x = [row.added_gpus for row in group]
            ours = [(row.speed, row.saving)[figure] for row in group]
            theirs = [(row.published_speed, row.published_saving)[figure] for row in group]
            curves.append(Curve(stages, x, ours))
            known = [one for one in theirs if one is not None]
            published.append(Curve(f"{stages}, GoldMiner", x, known, beside=stages))
        panels.append(Panel(title, "GPUs added", title, [*curves, *published]))
    return panels


def show_stages(stages: int, goals: Sequence[Goal]) -> None:
    """How many jobs reach what."""
    lines = [[goal.name, goal.goal, f"{goal.got:.3f}"] for goal in goals]
    show(f"Tuning of random jobs of {stages} stages", ["share of the jobs", "goal", "got"], lines)


def stages_panels(exact: Sequence[StagedRun], noisy: Sequence[StagedRun]) -> list[Panel]:
    """Mean speed by interval, and how far the workers are from the best at the end."""
    speeds, off = [], []
    for name, runs in (("exact measurements", exact), ("with noise", noisy)):
        count = min(len(run.speeds) for run in runs)
        means = [sum(run.speeds[at] for run in runs) / len(runs) for at in range(count)]
        speeds.append(Curve(name, range(count), means))
        found = Counter(run.off for run in runs)
        at = range(max(found) + 1)
        off.append(Curve(name, at, [found[one] / len(runs) for one in at]))
    return [
        Panel("Speed while the stages are tuned", "interval", "share of ideal", speeds),
        Panel("Workers of the worst stage off the best", "workers", "share of the jobs", off),
    ]


def show_fragments(rows: Sequence[Machines], queues: Sequence[Queueing]) -> None:
    """Machines by policy, and queueing by load."""
    lines = [
        [
            row.workload,
            row.policy,
            beside(100 * row.no_cpu, 100 * PUBLISHED_NO_CPU, 1),
            beside(100 * row.no_gpu, 100 * PUBLISHED_NO_GPU, 1),
        ]
        for row in rows
    ]
    title = "Machines of which one resource is used up, %; in brackets GoldMiner's cluster, Fig. 3"
    show(title, ["workload", "policy", "no CPU, GPUs free", "no GPUs, CPU free"], lines)
    waits = [
        [
            f"{row.load:g}",
            row.approach,
            f"{row.queue_minutes:.0f}",
            beside(100 * row.cpu_share, 100 * PUBLISHED_CPU_WAIT, 1),
        ]
        for row in queues
    ]
    title = "Queueing, and the share of it for CPU; in brackets GoldMiner's cluster, Fig. 4"
    show(title, ["load", "approach", "minutes", "for CPU, %"], waits)


def fragments_panels(rows: Sequence[Machines], queues: Sequence[Queueing]) -> list[Panel]:
    """Machines sorted by their fragmentation, and the minutes that jobs queue for CPU."""
    panels = []
    for workload in dict.fromkeys(row.workload for row in rows):
        curves = [
            Curve(row.policy, _percent(len(row.values)), row.values)
            for row in rows
            if row.workload == workload
        ]
        label = "free CPU share less free GPU share"
        panels.append(Panel(f"Machines, {workload}", "machines, %", label, curves))
    curves = []
    for approach in dict.fromkeys(row.approach for row in queues):
        group = [row for row in queues if row.approach == approach]
        loads = [row.load for row in group]
        curves.append(Curve(approach, loads, [row.queue_minutes * row.cpu_share for row in group]))
    panels.append(Panel("Queueing for CPU", "load", "minutes a job", curves))
    return panels


def _percent(count: int) -> list[float]:
    return [100 * one / max(1, count - 1) for one in range(count)]
