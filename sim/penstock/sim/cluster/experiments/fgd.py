"""`penstock sim fgd`: placement policies on the workloads of the FGD paper, beside its results."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.scheduler.placement.fgd import typical_requests
from penstock.scheduler.placement.registry import POLICY_NAMES, Context, make_policy
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request
from penstock.sim.cluster.arrivals import Filling, arrivals, fill
from penstock.sim.errors import SimulationError, UnknownNameError, UnnamedTracesError
from penstock.sim.traces import alibaba, generator, openb
from penstock.sim.traces.shapes import NodeShape

OFFERED: Final = 1.3
"""Demand offered, as a part of the cluster's accelerators."""

MARKS: Final = (80, 100, 130)
"""Percents of demand arrived at which the allocation is reported."""

GENERATED: Final = "generated"
"""Name of the workload that needs no files."""

DLRM: Final = "dlrm"
"""Name of the workload made of the instances of cluster-trace-gpu-v2025."""

_GENERATED_NODES: Final = 600
_GENERATED_PODS: Final = 4000


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one workload with one seed; allocations in percent of all accelerators."""

    workload: str
    policy: str
    seed: int
    allocated_at_80: float
    allocated_at_100: float
    allocated_at_130: float
    stranded_gpus: float

    def as_json(self) -> dict[str, object]:
        """The run with its numbers rounded as they are printed."""
        return {
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster, and the pods that arrive at it."""

    name: str
    nodes: Sequence[NodeShape]
    pods: Sequence[Request]


def load_workload(folder: Path | None, name: str, nodes_file: str = openb.GPU_NODES) -> Workload:
    """A workload of a folder with traces, or the generated one, which needs no folder.

    Raises:
        UnnamedTracesError: the workload is one of a folder, and none was named.
        UnknownNameError: the folder has no such workload; the message lists those it has.
        TraceError: a file is missing or broken.
    """
    if name == GENERATED:
        draw = np.random.default_rng(0)
        nodes = generator.generate_nodes(_GENERATED_NODES, draw)
        return Workload(name, nodes, generator.generate_pods(_GENERATED_PODS, draw))
    if folder is None:
        raise UnnamedTracesError(f"the workload {GENERATED!r}")
    nodes = read_node_file(folder / nodes_file)
    if name == DLRM:
        return Workload(name, nodes, alibaba.read_dlrm_pods(folder / alibaba.DLRM_INSTANCES))
    known = openb.workloads(folder)
    if known and name not in known:
        raise UnknownNameError("workload", name, (*known, DLRM, GENERATED))
    return Workload(name, nodes, openb.read_pods(folder / openb.pod_list(name)))


def read_node_file(path: Path) -> list[NodeShape]:
    """The nodes of a file in openb's or in the spot trace's format, told apart by the name."""
    if path.name == alibaba.SPOT_NODES:
        return alibaba.read_spot_nodes(path)
    return openb.read_nodes(path)


def simulate(
    workloads: Sequence[Workload], policies: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[Run, Filling]]:
    """Every policy on every workload with every seed; one seed gives all policies the same pods."""
    for name in policies:
        if name not in POLICY_NAMES:
            raise UnknownNameError("policy", name, POLICY_NAMES)
    for workload in workloads:
        capacity = WHOLE_DEVICE_MILLI * sum(node.accelerators for node in workload.nodes)
        if capacity == 0 or not any(pod.accelerators for pod in workload.pods):
            what = "nodes have" if capacity == 0 else "pods ask for"
            raise SimulationError(f"workload {workload.name!r}: its {what} no accelerators at all")
        typical = typical_requests(workload.pods)
        for seed in seeds:
            stream = arrivals(workload.pods, capacity, OFFERED, np.random.default_rng(seed))
            for name in policies:
                context = Context(np.random.default_rng([seed, 1]), typical)
                filling = fill(workload.nodes, stream, make_policy(name, context))
                yield _run(workload.name, name, seed, filling), filling


def _run(workload: str, policy: str, seed: int, filling: Filling) -> Run:
    at_80, at_100, at_130 = (filling.at(mark) for mark in MARKS)
    return Run(workload, policy, seed, at_80, at_100, at_130, filling.stranded_accelerators)


@dataclass(frozen=True, slots=True)
class FgdSummary:
    """Mean and spread over seeds of one policy on one workload, beside the published mean."""

    workload: str
    policy: str
    seeds: int
    mean: Mapping[int, float]
    deviation: Mapping[int, float]
    published: Mapping[int, float]
    stranded_gpus: float


def summarise(
    runs: Sequence[Run], published: Mapping[tuple[str, str], openb.Published]
) -> list[FgdSummary]:
    """One summary per workload and policy, in the order of the runs."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.policy), []).append(run)
    summaries = []
    for key, group in groups.items():
        values = {mark: [getattr(run, f"allocated_at_{mark}") for run in group] for mark in MARKS}
        known = published.get(key)
        summaries.append(
            FgdSummary(
                *key,
                seeds=len(group),
                mean={mark: statistics.fmean(of) for mark, of in values.items()},
                deviation={mark: statistics.pstdev(of) for mark, of in values.items()},
                published={} if known is None else {m: known.mean[m] for m in MARKS},
                stranded_gpus=statistics.fmean(run.stranded_gpus for run in group),
            )
        )
    return summaries
