"""Pods that arrive and never end: how full does a policy get a cluster?

The experiment of the FGD artifact (Weng et al., ATC 2023, section 6): the pods of a workload in
random order, redrawn or cut until they ask for 130 % of the accelerators; each is placed or, where
it fits nowhere, skipped; the allocated share is read at every percent of demand that has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.scheduler.fragmentation import stranded_accelerators
from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request
from penstock.sim.traces.shapes import NodeShape


def build_columns(nodes: Sequence[NodeShape]) -> NodeTable:
    """Empty columns with these nodes."""
    most = max((node.accelerators for node in nodes), default=1)
    columns = NodeTable(capacity=max(1, len(nodes)), devices=max(1, most))
    for node in nodes:
        columns.add(
            node.name,
            milli_cpu=node.milli_cpu,
            memory_bytes=node.memory_bytes,
            devices=[node.model] * node.accelerators,
        )
    return columns


def arrivals(
    pods: Sequence[Request], capacity_milli: int, ratio: float, generator: np.random.Generator
) -> list[Request]:
    """The pods in random order, cut or redrawn until they ask for `ratio` of the accelerators."""
    order = [pods[index] for index in generator.permutation(len(pods))]
    target = ratio * capacity_milli
    if not any(pod.accelerators for pod in pods):
        return order
    asked, chosen = 0, []
    for pod in order:
        if asked >= target:
            break
        chosen.append(pod)
        asked += pod.total_accelerator_milli
    while asked < target:
        pod = pods[int(generator.integers(len(pods)))]
        chosen.append(pod)
        asked += pod.total_accelerator_milli
    return chosen


@dataclass(frozen=True, slots=True)
class Filling:
    """How a cluster filled up: allocated percent by percent of demand that had arrived."""

    allocated: dict[int, float]
    stranded_accelerators: float
    skipped: int

    def at(self, arrived_percent: int) -> float:
        """Allocated percent when that much had arrived (or the nearest that was seen)."""
        nearest = min(self.allocated, key=lambda seen: abs(seen - arrived_percent), default=None)
        return 0.0 if nearest is None else self.allocated[nearest]


def fill(nodes: Sequence[NodeShape], stream: Sequence[Request], policy: PlacementPolicy) -> Filling:
    """Place a stream of pods on an empty cluster."""
    columns = build_columns(nodes)
    placer = Placer(columns, policy)
    total = int(columns.total_accelerator_milli.sum())
    arrived = used = skipped = 0
    sums: dict[int, tuple[float, int]] = {}
    for pod in stream:
        arrived += pod.total_accelerator_milli
        if placer.place(pod) is None:
            skipped += 1
        else:
            used += pod.total_accelerator_milli
        if total:
            percent = round(100 * arrived / total)
            value, count = sums.get(percent, (0.0, 0))
            sums[percent] = (value + 100 * used / total, count + 1)
    stranded = stranded_accelerators(columns, columns.rows()).sum() / WHOLE_DEVICE_MILLI
    means = {percent: value / count for percent, (value, count) in sums.items()}
    return Filling(means, float(stranded), skipped)
