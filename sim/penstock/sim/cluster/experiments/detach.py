"""`penstock sim detach`: what if a part of each GPU pod's CPU could run anywhere in the cluster?

Every pod with accelerators gives up a share of its CPU, which becomes data workers of 1 to 8 cores
that go wherever there is CPU, the cluster's CPU-only nodes included. A pod counts as placed when
its accelerators and all of its data workers are. Data workers are stateless: where accelerators are
free and only CPU is missing, those already on the node move elsewhere.

What it is judged by: idle accelerators that lack only CPU, that is, for a request drawn from the
workload, the expected number of free accelerators on nodes whose devices and memory would do for
it and whose CPU would not (class Q4 of Weng et al., ATC 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.placement.engine import Placement, Placer
from penstock.scheduler.placement.feasible import fits
from penstock.scheduler.placement.fgd import typical_requests
from penstock.scheduler.placement.registry import Context, make_policy
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request
from penstock.sim.cluster.arrivals import arrivals, build_columns
from penstock.sim.cluster.experiments.fgd import OFFERED, Workload
from penstock.sim.errors import SimulationError

LARGEST_DATA_WORKER_MILLI_CPU: Final = 8_000
SMALLEST_DATA_WORKER_MILLI_CPU: Final = 1_000

_NODES_TO_CLEAR: Final = 8  # nodes that are tried when data workers have to move for a pod


@dataclass(frozen=True, slots=True)
class Detachment:
    """One fill of the cluster, in whole accelerators and percent."""

    share: float
    cpu_idle_gpus: float
    allocated: float
    moved_data_workers: int


def detach(pod: Request, share: float) -> tuple[Request, list[Request]]:
    """The pod with `share` of its CPU taken off, and the data workers made of that.

    Less than the smallest data worker is left with the pod; so is the CPU of a pod that has no
    accelerators.

    Raises:
        SimulationError: the share is not from 0 to 1.
    """
    if not 0.0 <= share <= 1.0:
        raise SimulationError(f"share={share}: must be from 0 to 1")
    taken = int(pod.milli_cpu * share) if pod.accelerators else 0
    if taken < SMALLEST_DATA_WORKER_MILLI_CPU:
        return pod, []
    count = -(-taken // LARGEST_DATA_WORKER_MILLI_CPU)
    sizes = [taken // count + (1 if index < taken % count else 0) for index in range(count)]
    workers = [Request(milli_cpu=size) for size in sizes]
    return replace(pod, milli_cpu=pod.milli_cpu - taken), workers


def run(workload: Workload, share: float, policy: str, seed: int) -> Detachment:
    """Fill the workload's cluster with detached pods."""
    capacity = WHOLE_DEVICE_MILLI * sum(node.accelerators for node in workload.nodes)
    if capacity == 0:
        raise SimulationError(f"workload {workload.name!r}: its nodes have no accelerators at all")
    stream = arrivals(workload.pods, capacity, OFFERED, np.random.default_rng(seed))
    parts = [detach(pod, share) for pod in workload.pods]
    typical = typical_requests([pod for pod, _ in parts if pod.accelerators])
    context = Context(np.random.default_rng([seed, 1]), typical)
    columns = build_columns(workload.nodes)
    filling = _Filling(columns, Placer(columns, make_policy(policy, context)))
    used = sum(pod.total_accelerator_milli for pod in stream if filling.place(*detach(pod, share)))
    return Detachment(
        share=share,
        cpu_idle_gpus=cpu_idle(columns, typical),
        allocated=100.0 * used / capacity,
        moved_data_workers=filling.moved,
    )


def cpu_idle(columns: NodeTable, typical: Mapping[Request, float]) -> float:
    """Accelerators that are idle for lack of CPU alone, expected over the typical requests."""
    rows = columns.rows()
    idle = columns.free_accelerator_milli[rows] / WHOLE_DEVICE_MILLI
    total = 0.0
    for request, weight in typical.items():
        lacking = columns.free_milli_cpu[rows] < request.milli_cpu
        only = lacking & fits(columns, replace(request, milli_cpu=0), rows)
        total += weight * float(idle[only].sum())
    return total


class _Filling:
    """A cluster that is being filled; knows which data workers are where."""

    def __init__(self, columns: NodeTable, placer: Placer) -> None:
        self._columns = columns
        self._placer = placer
        self._on_row: dict[int, list[Request]] = {}
        self.moved = 0

    def place(self, pod: Request, data_workers: Sequence[Request]) -> bool:
        """Place a pod and its data workers: all of them, or nothing."""
        placement = self._placer.place(pod) or self._place_by_moving(pod)
        if placement is None:
            return False
        placed: list[tuple[Placement, Request]] = []
        for worker in data_workers:
            spot = self._placer.place(worker)
            if spot is None:
                self._take_down(placed)
                self._columns.give(placement.row, pod, placement.devices)
                return False
            self._put(spot, worker, placed)
        return True

    def _put(
        self, spot: Placement, worker: Request, placed: list[tuple[Placement, Request]]
    ) -> None:
        placed.append((spot, worker))
        self._on_row.setdefault(spot.row, []).append(worker)

    def _take_down(self, placed: Sequence[tuple[Placement, Request]]) -> None:
        for spot, worker in placed:
            self._columns.give(spot.row, worker)
            self._on_row[spot.row].remove(worker)

    def _place_by_moving(self, pod: Request) -> Placement | None:
        """Move data workers off a node that lacks only CPU, and place the pod there."""
        if not pod.accelerators:
            return None
        columns = self._columns
        rows = columns.rows()
        open_rows = rows[fits(columns, replace(pod, milli_cpu=0), rows)]
        lacking = pod.milli_cpu - columns.free_milli_cpu[open_rows]
        movable = np.array([self._movable(row) for row in open_rows.tolist()], dtype=np.int64)
        enough = np.flatnonzero(movable >= lacking)
        nearest = enough[np.argsort(lacking[enough], kind="stable")][:_NODES_TO_CLEAR]
        for index in nearest.tolist():
            if self._clear(int(open_rows[index]), int(lacking[index])):
                return self._placer.place(pod)
        return None

    def _movable(self, row: int) -> int:
        return sum(worker.milli_cpu for worker in self._on_row.get(row, ()))

    def _clear(self, row: int, milli_cpu: int) -> bool:
        """Move that much CPU worth of data workers off a node; start-new before drain-old."""
        placed: list[tuple[Placement, Request]] = []
        leaving: list[Request] = []
        self._columns.set_schedulable(row, False)
        for worker in sorted(self._on_row[row], key=lambda worker: -worker.milli_cpu):
            if milli_cpu <= 0:
                break
            spot = self._placer.place(worker)
            if spot is not None:
                self._put(spot, worker, placed)
                leaving.append(worker)
                milli_cpu -= worker.milli_cpu
        self._columns.set_schedulable(row, True)
        if milli_cpu > 0:
            self._take_down(placed)
            return False
        for worker in leaving:
            self._on_row[row].remove(worker)
            self._columns.give(row, worker)
        self.moved += len(leaving)
        return True
