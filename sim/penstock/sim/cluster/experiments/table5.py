"""`penstock sim table5`: GoldMiner's cluster experiment, as gain against load with its spread.

GoldMiner (SIGMOD 2023, section 5.6, Table 5): 8 nodes with 8 GPUs and 64 cores, strict FIFO. The
paper reports one number per row; but a gain over a baseline that queues depends above all on how
much it queues, so here every row is run at several loads, on windows drawn by several seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from penstock.scheduler.policies.registry import make_allocation_policy
from penstock.sim.cluster.experiments.training import (
    DATA_WORKER_MILLI_CPU,
    INTERVAL_SECONDS,
    LEAST_TRAINING_WORKER_MILLI_CPU,
    TRAINING_WORKER_MILLI_CPU,
    Approach,
    Cluster,
    TrainingOutcome,
)
from penstock.sim.cluster.job_mix import draw_jobs
from penstock.sim.report.goals import Goal, at_least, at_most
from penstock.sim.traces import generator, philly
from penstock.sim.traces.shapes import JobShape

NODES: Final = 8
GPUS_PER_NODE: Final = 8
MILLI_CPU_PER_NODE: Final = 64_000

PREDICTED: Final = ", predicted"
TUNED_GOAL: Final = 2
GAIN_GOAL: Final = 1.05
BASELINE: Final = "no-data-workers-tuned"

_GENERATED_JOBS: Final = 20_000
_GENERATED_SPAN_SECONDS: Final = 60 * 86_400.0


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row of Table 5: JCT gain, mean queueing in minutes, GPU allocation in percent (Fig. 14)."""

    gain: float | None
    queue_minutes: float | None
    gpu_allocation: float | None = None


NOT_PUBLISHED: Final = PublishedRow(None, None)
PUBLISHED: Final = {
    BASELINE: PublishedRow(1.0, 338, 35.5),
    "no-data-workers-hardware": PublishedRow(1.1, 4),
    "fixed-data-workers": PublishedRow(1.5, 160, 43.8),
    "Fair": PublishedRow(1.5, 14),
    "MaxThroughput": PublishedRow(2.3, 0, 76.0),
    "ShortestRemaining": PublishedRow(2.5, 0),
}


def approaches(*, predicted: bool = False) -> list[Approach]:
    """The rows: the paper's, and LeastWork, which is ours.

    ``predicted``: each policy once more, with a model of every job that says what it needs.

    Ours differs in three ways: cores go to the job with the least work left and are taken back for
    it, growth doubles, and training workers start small and are resized in place.
    """
    rows = [
        Approach(BASELINE),
        Approach("no-data-workers-hardware", worker_milli_cpu=DATA_WORKER_MILLI_CPU),
        Approach("fixed-data-workers", TRAINING_WORKER_MILLI_CPU, fixed_data_workers=True),
    ]
    for name in ("Fair", "MaxThroughput", "ShortestRemaining"):
        policy = make_allocation_policy(name)
        rows.append(Approach(name, TRAINING_WORKER_MILLI_CPU, policy=policy))
    ours = make_allocation_policy("LeastWork")
    rows.append(Approach(ours.name, LEAST_TRAINING_WORKER_MILLI_CPU, policy=ours))
    if predicted:
        rows += [
            replace(row, name=f"{row.name}{PREDICTED}", predicted=True)
            for row in rows
            if row.policy is not None
        ]
    return rows


def load_trace(folder: Path | None) -> list[JobShape]:
    """The jobs of the Philly trace in a folder; generated ones where there is no folder."""
    if folder is not None:
        return philly.read_jobs(folder / philly.JOBS)
    draw = np.random.default_rng(0)
    return generator.generate_jobs(_GENERATED_JOBS, _GENERATED_SPAN_SECONDS, draw)


@dataclass(frozen=True, slots=True)
class Table5Row:
    """One row at one load: means over seeds, and the spread of the gain over them."""

    load: float
    policy: str
    jct_minutes: float
    gain: float
    gain_deviation: float
    queue_minutes: float
    gpu_allocation: float
    seeds: int
    growths: float = 0.0
    """Intervals in which a job got data workers until its queue was full: nine in ten need less."""

    def as_json(self) -> dict[str, object]:
        """The row under the names that other programs read."""
        return {
            "load": self.load,
            "policy": self.policy,
            "jct_minutes": round(self.jct_minutes, 2),
            "gain": round(self.gain, 3),
            "gain_deviation": round(self.gain_deviation, 3),
            "queue_minutes": round(self.queue_minutes, 2),
            "gpu_allocation": round(self.gpu_allocation, 2),
            "seeds": self.seeds,
            "growth_intervals_p90": round(self.growths, 2),
        }


def simulate(
    trace: Sequence[JobShape],
    loads: Sequence[float],
    seeds: Sequence[int],
    *,
    predicted: bool = False,
) -> Iterator[Table5Row]:
    """Every row at every load; a seed gives all rows of a load the same jobs."""
    for load in loads:
        outcomes: dict[str, list[TrainingOutcome]] = {}
        for seed in seeds:
            draw = np.random.default_rng([seed, round(1000 * load)])
            jobs = draw_jobs(trace, load, NODES * GPUS_PER_NODE, draw)
            for approach in approaches(predicted=predicted):
                cluster = Cluster(approach, NODES, GPUS_PER_NODE, MILLI_CPU_PER_NODE)
                outcomes.setdefault(approach.name, []).append(cluster.run(jobs))
        baseline = outcomes[BASELINE]
        for name, runs in outcomes.items():
            yield _row(load, name, runs, baseline)


def predicted_goals(rows: Sequence[Table5Row]) -> list[Goal]:
    """What a model of every job should bring a policy, of each policy at each load.

    Beside it what it can bring: with everything at its first moment a job ends earlier by the
    intervals in which it grew, and by no more, unless others end earlier before it in the queue.
    """
    found = {(row.load, row.policy): row for row in rows}
    goals = []
    for (load, name), plain in found.items():
        if (model := found.get((load, name + PREDICTED))) is None:
            continue
        where = f"{name} at {load:g}"
        most = plain.growths * INTERVAL_SECONDS / (60 * plain.jct_minutes)
        goals.append(at_most(f"{where}: intervals until tuned", TUNED_GOAL, model.growths))
        label = f"{where}: gain with a model, by that without (growing takes {most:.1%} of a JCT)"
        goals.append(at_least(label, GAIN_GOAL, model.gain / plain.gain))
    return goals


def _row(
    load: float, name: str, runs: Sequence[TrainingOutcome], baseline: Sequence[TrainingOutcome]
) -> Table5Row:
    """The gain is that of the mean JCT over all seeds; its spread is that of the seeds' gains."""
    jct = statistics.fmean(run.jct_minutes for run in runs)
    gains = [
        before.jct_minutes / after.jct_minutes for before, after in zip(baseline, runs, strict=True)
    ]
    return Table5Row(
        load=load,
        policy=name,
        jct_minutes=jct,
        gain=statistics.fmean(run.jct_minutes for run in baseline) / jct,
        gain_deviation=statistics.pstdev(gains),
        queue_minutes=statistics.fmean(run.queue_minutes for run in runs),
        gpu_allocation=statistics.fmean(run.gpu_allocation for run in runs),
        seeds=len(runs),
        growths=_p90([one for run in runs for one in run.growths]),
    )


def _p90(values: Sequence[int]) -> float:
    grown = sorted(one for one in values if one)
    return float(grown[int(0.9 * (len(grown) - 1))]) if grown else 0.0
