"""The tables and pictures of the cluster experiments."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from penstock.sim.cluster.arrivals import Filling
from penstock.sim.cluster.experiments.detach import Detachment
from penstock.sim.cluster.experiments.fgd import MARKS, FgdSummary, Run
from penstock.sim.cluster.experiments.table5 import NOT_PUBLISHED, PUBLISHED, Table5Row
from penstock.sim.cluster.experiments.tuning import TraceLine
from penstock.sim.report.plot import Curve, Panel
from penstock.sim.report.tables import beside, show
from penstock.sim.traces.openb import Published


def show_fgd(summaries: Sequence[FgdSummary]) -> None:
    """Percent of GPUs allocated by demand arrived, the published mean in brackets."""
    rows = [
        [
            summary.workload,
            summary.policy,
            str(summary.seeds),
            *(beside(summary.mean[mark], summary.published.get(mark)) for mark in MARKS),
            f"{summary.deviation[MARKS[-1]]:.2f}",
            f"{summary.stranded_gpus:.1f}",
        ]
        for summary in summaries
    ]
    marks = [f"at {mark} %" for mark in MARKS]
    columns = ["workload", "policy", "seeds", *marks, "deviation", "stranded GPUs"]
    show(
        "GPUs allocated, percent; published mean in brackets (Weng et al., ATC 2023)", columns, rows
    )


def fgd_panels(
    results: Sequence[tuple[Run, Filling]],
    published: Mapping[tuple[str, str], Published],
) -> list[Panel]:
    """One panel per workload: GPUs allocated by demand arrived, mean over seeds with deviation."""
    curves: dict[str, dict[str, list[Filling]]] = {}
    for run, filling in results:
        curves.setdefault(run.workload, {}).setdefault(run.policy, []).append(filling)
    arrived = list(range(60, MARKS[-1] + 1))
    panels = []
    for workload, by_policy in curves.items():
        ours, theirs = [], []
        for policy, fillings in by_policy.items():
            values = [[filling.at(x) for filling in fillings] for x in arrived]
            means = [statistics.fmean(of) for of in values]
            ours.append(Curve(policy, arrived, means, [statistics.pstdev(of) for of in values]))
            known = published.get((workload, policy))
            if known is not None:
                of_paper = [known.mean[x] for x in arrived]
                theirs.append(Curve(f"{policy}, published", arrived, of_paper, beside=policy))
        labels = ("demand arrived, % of the GPUs", "GPUs allocated, %")
        panels.append(Panel(workload, *labels, [*ours, *theirs]))
    return panels


def show_detach(
    workload: str, policy: str, before: Sequence[Detachment], after: Sequence[Detachment]
) -> None:
    """GPUs idle for lack of CPU alone, before and after, one line per share."""
    rows = [
        [
            workload,
            policy,
            f"{runs[0].share:.0%}",
            f"{statistics.fmean(run.cpu_idle_gpus for run in runs):.2f}",
            f"{statistics.pstdev(run.cpu_idle_gpus for run in runs):.2f}",
            f"{statistics.fmean(run.allocated for run in runs):.2f}",
            f"{statistics.fmean(run.moved_data_workers for run in runs):.0f}",
        ]
        for runs in (before, after)
    ]
    columns = ["workload", "policy", "CPU detached", "GPUs idle for CPU", "deviation"]
    title = "GPUs that lack only CPU (goal at half of the CPU detached: at most half of them)"
    show(title, [*columns, "allocated, %", "data workers moved"], rows)


def detach_panels(before: Sequence[Detachment], after: Sequence[Detachment]) -> list[Panel]:
    """GPUs idle for lack of CPU alone, and GPUs allocated, before and after."""
    sides = (before, after)
    shares = [100 * runs[0].share for runs in sides]

    def curve(label: str, values: Sequence[Sequence[float]]) -> Curve:
        means = [statistics.fmean(of) for of in values]
        return Curve(label, shares, means, [statistics.pstdev(of) for of in values])

    idle = curve("idle", [[run.cpu_idle_gpus for run in runs] for runs in sides])
    used = curve("allocated", [[run.allocated for run in runs] for runs in sides])
    goal = Curve("goal: half", shares, [idle.y[0] / 2] * 2, beside="")
    share = "CPU of the GPU pods that is detached, %"
    return [
        Panel("GPUs that lack only CPU", share, "GPUs", [idle, goal]),
        Panel("GPUs allocated", share, "% of the GPUs", [used]),
    ]


def show_table5(rows: Sequence[Table5Row]) -> None:
    """Rows by load; the paper's values stand in brackets where its baseline queues alike."""
    nearest = _paper_load(rows)
    lines = []
    for row in rows:
        paper = PUBLISHED.get(row.policy, NOT_PUBLISHED) if row.load == nearest else NOT_PUBLISHED
        lines.append(
            [
                f"{row.load:g}",
                row.policy,
                f"{row.jct_minutes:.0f}",
                beside(row.gain, paper.gain),
                f"{row.gain_deviation:.2f}",
                beside(row.queue_minutes, paper.queue_minutes, 0),
                beside(row.gpu_allocation, paper.gpu_allocation, 1),
                f"{row.growths:.0f}",
            ]
        )
    columns = ["load", "policy", "JCT, min", "gain", "deviation", "queueing, min", "GPUs, %"]
    columns.append("intervals to tuned, p90")
    title = (
        "Job completion time; in brackets GoldMiner, Table 5, at the load that queues most alike"
    )
    show(title, columns, lines)


def _paper_load(rows: Sequence[Table5Row]) -> float:
    """The load whose first row queues most like the paper's first row."""
    name, paper = next(iter(PUBLISHED.items()))
    assert paper.queue_minutes is not None
    queued = paper.queue_minutes
    baselines = [row for row in rows if row.policy == name]
    return min(baselines, key=lambda row: abs(row.queue_minutes - queued)).load


def table5_panels(rows: Sequence[Table5Row]) -> list[Panel]:
    """Gain and completion time by load; the paper's gains at the load most like its own."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    by_policy = {name: [row for row in rows if row.policy == name] for name in policies}
    gain = [
        Curve(
            name,
            [row.load for row in group],
            [row.gain for row in group],
            [row.gain_deviation for row in group],
        )
        for name, group in by_policy.items()
    ]
    nearest = _paper_load(rows)
    for name in policies:
        value = PUBLISHED.get(name, NOT_PUBLISHED).gain
        if value is not None:
            gain.append(Curve(f"{name}, GoldMiner", [nearest], [value], beside=name))
    time = [
        Curve(name, [row.load for row in group], [row.jct_minutes for row in group])
        for name, group in by_policy.items()
    ]
    return [
        Panel("Gain over tuned CPU without data workers", "load", "JCT gain", gain),
        Panel("Mean job completion time", "load", "minutes", time),
    ]


def show_tuning(lines: Sequence[TraceLine]) -> None:
    """The tuning interval by interval: what the job ran with and what was decided."""
    rows = [
        [
            str(line.interval),
            str(line.stage),
            f"{line.data_workers} x {line.data_worker_cores}",
            str(line.training_cores),
            f"{line.steps_per_second:.2f}",
            line.decision,
        ]
        for line in lines
    ]
    columns = ["interval", "stage", "data workers x cores", "training cores", "steps/s", "then"]
    show("Tuning of a ResNet18 job (GoldMiner, Fig. 13, ends with 3 x 8 and 3)", columns, rows)
