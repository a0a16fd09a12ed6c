"""`penstock sim fragments`: machines of which one resource is used up and the other is not.

GoldMiner (SIGMOD 2023, section 2.2) saw in a production cluster of 5,600 GPUs that 31 % of the
machines had all CPU allocated and more than a quarter of the GPUs free, and 18 % the other way
round (Fig. 3); and that 39.2 % of the time that jobs queue they lack CPU (Fig. 4). Its trace is not
public. Here are the same figures of two that are:

- Machines: openb is filled with pods that arrive in random order and never end, until they ask for
  130 % of the GPUs, as in `penstock sim fgd`. Only nodes with GPUs count. A resource is used up
  where `USED_UP` of it or less is free.
- Queueing: jobs of the Philly trace, each with the CPU that its model is assumed to need, in strict
  FIFO, as in `penstock sim table5`. All jobs that wait, wait for what the first of them lacks;
  where it lacks both, that counts as GPUs, as in the paper.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.scheduler.fragmentation import fragmentation, shares
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.fgd import typical_requests
from penstock.scheduler.placement.registry import Context, make_policy
from penstock.scheduler.request import WHOLE_DEVICE_MILLI
from penstock.sim.cluster.arrivals import arrivals, build_columns
from penstock.sim.cluster.experiments import table5
from penstock.sim.cluster.experiments.fgd import OFFERED, Workload
from penstock.sim.cluster.experiments.training import Cluster
from penstock.sim.cluster.job_mix import draw_jobs
from penstock.sim.errors import SimulationError
from penstock.sim.report.goals import Goal, at_most
from penstock.sim.traces.shapes import JobShape

USED_UP: Final = 0.02
FREE: Final = 0.25
PUBLISHED_NO_CPU: Final = 0.31
PUBLISHED_NO_GPU: Final = 0.18
PUBLISHED_CPU_WAIT: Final = 0.392
OURS: Final = "stranding"
LEFT: Final = 0.5
"""Of what was published for machines, and of what jobs without data workers queue for CPU."""


@dataclass(frozen=True, slots=True)
class Machines:
    """One policy on one workload: shares of the nodes with GPUs, means over seeds.

    Attributes:
        no_cpu: CPU used up, more than a quarter of the GPUs free.
        no_gpu: the other way round.
        values: free CPU share less free GPU share of each node, sorted, of the first seed.
    """

    workload: str
    policy: str
    no_cpu: float
    no_gpu: float
    values: tuple[float, ...]

    def as_json(self) -> dict[str, object]:
        """The row under the names that other programs read."""
        return {
            "workload": self.workload,
            "policy": self.policy,
            "no_cpu_and_gpus_free": round(self.no_cpu, 4),
            "no_gpus_and_cpu_free": round(self.no_gpu, 4),
            "published": [PUBLISHED_NO_CPU, PUBLISHED_NO_GPU],
        }


@dataclass(frozen=True, slots=True)
class Queueing:
    """One approach at one load, means over seeds."""

    load: float
    approach: str
    queue_minutes: float
    cpu_share: float

    def as_json(self) -> dict[str, object]:
        """The row under the names that other programs read."""
        return {
            "load": self.load,
            "approach": self.approach,
            "queue_minutes": round(self.queue_minutes, 2),
            "cpu_share": round(self.cpu_share, 4),
            "published": PUBLISHED_CPU_WAIT,
        }


def machines(workload: Workload, policy: str, seeds: Sequence[int]) -> Machines:
    """Fill a workload's cluster, once for each seed.

    Raises:
        SimulationError: its nodes have no accelerators.
    """
    capacity = WHOLE_DEVICE_MILLI * sum(node.accelerators for node in workload.nodes)
    if capacity == 0:
        raise SimulationError(f"workload {workload.name!r}: its nodes have no accelerators at all")
    found = []
    for seed in seeds:
        stream = arrivals(workload.pods, capacity, OFFERED, np.random.default_rng(seed))
        typical = typical_requests([pod for pod in workload.pods if pod.accelerators])
        columns = build_columns(workload.nodes)
        context = Context(np.random.default_rng([seed, 1]), typical)
        placer = Placer(columns, make_policy(policy, context))
        for pod in stream:
            placer.place(pod)
        rows = columns.rows()
        rows = rows[columns.total_accelerator_milli[rows] > 0]
        cpu = shares(columns.free_milli_cpu[rows], columns.total_milli_cpu[rows])
        gpu = shares(columns.free_accelerator_milli[rows], columns.total_accelerator_milli[rows])
        no_cpu = float(((cpu <= USED_UP) & (gpu > FREE)).mean())
        no_gpu = float(((gpu <= USED_UP) & (cpu > FREE)).mean())
        found.append((no_cpu, no_gpu, np.sort(fragmentation(columns, rows)).tolist()))
    return Machines(
        workload.name,
        policy,
        statistics.fmean(one[0] for one in found),
        statistics.fmean(one[1] for one in found),
        tuple(found[0][2]),
    )


def queueing(trace: Sequence[JobShape], load: float, seeds: Sequence[int]) -> list[Queueing]:
    """Jobs that bring all their CPU, and jobs with data workers, in strict FIFO."""
    wanted = {table5.BASELINE, "fixed-data-workers", "LeastWork"}
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in seeds:
        draw = np.random.default_rng([seed, round(1000 * load)])
        jobs = draw_jobs(trace, load, table5.NODES * table5.GPUS_PER_NODE, draw)
        for approach in table5.approaches():
            if approach.name in wanted:
                cluster = Cluster(
                    approach, table5.NODES, table5.GPUS_PER_NODE, table5.MILLI_CPU_PER_NODE
                )
                outcome = cluster.run(jobs)
                one = (outcome.queue_minutes, outcome.cpu_wait_share)
                found.setdefault(approach.name, []).append(one)
    return [
        Queueing(load, name, statistics.fmean(one[0] for one in runs), _weighted(runs))
        for name, runs in found.items()
    ]


def _weighted(runs: Sequence[tuple[float, float]]) -> float:
    """The share over all windows: those in which jobs queue longer count more."""
    total = sum(minutes for minutes, _ in runs)
    return sum(minutes * share for minutes, share in runs) / total if total else 0.0


def goals(rows: Sequence[Machines], queues: Sequence[Queueing]) -> list[Goal]:
    """Of our placement and of elastic data workers: half of what there is without, at most."""
    found = []
    for row in rows:
        if row.policy == OURS:
            found += [
                at_most(f"{row.workload}: no CPU, GPUs free", LEFT * PUBLISHED_NO_CPU, row.no_cpu),
                at_most(f"{row.workload}: no GPUs, CPU free", LEFT * PUBLISHED_NO_GPU, row.no_gpu),
            ]
    for load in dict.fromkeys(row.load for row in queues):
        at = {row.approach: row for row in queues if row.load == load}
        alone = at[table5.BASELINE].queue_minutes * at[table5.BASELINE].cpu_share
        ours = at["LeastWork"].queue_minutes * at["LeastWork"].cpu_share
        found.append(at_most(f"load {load:g}: minutes that wait for CPU", LEFT * alone, ours))
    return found
