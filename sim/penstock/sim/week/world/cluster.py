"""The machines of a week: pods are put on nodes by the scheduler's own placement engine.

Both runs use the same engine and policies, so that nothing but the requests and what happens to a
lost pod differs: training pods are spread (kube-scheduler's default scoring), services are packed
(its MostAllocated), else no node would have room for a large pod. The pods with which a job begins
are placed together or not at all. Services come first: where one fits nowhere, the node on which
the fewest training pods have to go makes room for it, as kube-scheduler's preemption does.

Guarantees, checked by tests: no node ever gives more than it has, since `NodeTable` refuses it; and
what the pods were given adds up to what the nodes gave.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

import numpy as np

from penstock.scheduler.errors import OverCommitError
from penstock.scheduler.node_table import NodeTable, Rows
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.registry import Context, make_policy
from penstock.scheduler.request import Request
from penstock.sim.ps.jobs.model import GIB
from penstock.sim.week.world.assumptions import Assumptions
from penstock.sim.week.world.bills import Given, NodeMeter
from penstock.sim.week.world.clock import Clock
from penstock.sim.week.world.services import Service

CYCLE: Final = 10.0
"""So long after room was made, the pods that wait are tried again."""
_shape: Final = attrgetter("request", "avoids")


class Owner(Protocol):
    """A job, as far as its pods' places go."""

    def placed(self, pods: list[PlacedPod]) -> None:
        """Pods that were submitted together have got their nodes."""

    def unplaced(self, pod: PlacedPod) -> None:
        """A pod was tried for the first time and fits nowhere."""

    def lost(self, pod: PlacedPod, why: str) -> None:
        """A pod was taken away."""


@dataclass(eq=False, slots=True)
class PlacedPod:
    """One training pod, waiting or on a node."""

    uid: str
    role: str
    rank: int
    request: Request
    owner: Owner
    asked: float
    bill: Given
    """That of its job."""
    avoids: frozenset[str] = frozenset()
    """Nodes that it must not have, by name."""
    row: int = -1
    since: float = 0.0
    gone: bool = False
    refused: bool = False
    """Whether its owner knows that it fits nowhere."""


@dataclass(slots=True)
class Totals:
    """Sums over the run: of what training pods were given, in core- and byte-seconds."""

    core_seconds: float = 0.0
    byte_seconds: float = 0.0
    placements: int = 0
    waited: list[tuple[int, float]] = field(default_factory=list)
    """Milli-cores of each pod that was placed, and how long it waited."""
    preempted: int = 0
    node_losses: int = 0
    services_refused: int = 0


class Cluster:
    """Nodes, the pods on them, and those that wait."""

    def __init__(self, nodes: int, clock: Clock, assumed: Assumptions) -> None:
        self.clock = clock
        self.totals = Totals()
        self.table = NodeTable()
        for index in range(nodes):
            self.table.add(
                f"node-{index:05d}",
                milli_cpu=round(1000 * assumed.node_cores),
                memory_bytes=round(assumed.node_gib * GIB),
            )
        self._rows = self.table.rows()
        context = Context(np.random.default_rng(0), {})
        self._placer = Placer(self.table, make_policy("spread", context))
        self._packer = Placer(self.table, make_policy("most", context))
        self._repair = assumed.node_repair
        self._waiting: list[list[PlacedPod]] = []
        self._training: list[dict[str, PlacedPod]] = [{} for _ in range(nodes)]
        self._services: list[dict[Service, float]] = [{} for _ in range(nodes)]
        self._changed = False
        """Whether what waits could fit now though it did not when it was tried last."""
        self.given_milli_cpu = 0
        self.given_bytes = 0
        self._counted = 0.0
        self.node_core_seconds = 0.0
        """What was given to training, by the sum of what is given at each moment."""
        self.meter = NodeMeter(self.table)
        self.services = Given()
        """What services held, until the end of each."""

    # Training pods

    def submit(self, pods: list[PlacedPod]) -> None:
        """Pods want nodes, all of them or none."""
        self._waiting.append(pods)
        self._changed = True
        self._try_at(self.clock.now)

    def release(self, pod: PlacedPod) -> None:
        """A pod is gone, wherever it was."""
        if pod.gone:
            return
        pod.gone = True
        self._changed = True
        if pod.row >= 0:
            self._account(pod)
            self._count(-pod.request.milli_cpu, -pod.request.memory_bytes)
            self.meter.count(self.clock.now)
            self.table.give(pod.row, pod.request)
            del self._training[pod.row][pod.uid]
            self._try_at(self.clock.now + CYCLE)

    def resize(self, pod: PlacedPod, request: Request) -> bool:
        """Give a pod on a node other resources where it is; False: the node has not that much."""
        assert pod.row >= 0
        old = pod.request
        self.meter.count(self.clock.now)
        self.table.give(pod.row, old)
        try:
            self.table.take(pod.row, request)
        except OverCommitError:
            self.table.take(pod.row, old)
            return False
        self._account(pod)
        self._count(request.milli_cpu - old.milli_cpu, request.memory_bytes - old.memory_bytes)
        pod.request = request
        self._changed = True
        self._try_at(self.clock.now + CYCLE)
        return True

    def node_of(self, pod: PlacedPod) -> str:
        """The name of a pod's node; empty while it waits."""
        return self.table.names[pod.row] if pod.row >= 0 else ""

    @property
    def waiting(self) -> int:
        """Pods that have no node."""
        return sum(not pod.gone for group in self._waiting for pod in group)

    def _account(self, pod: PlacedPod) -> None:
        seconds = self.clock.now - pod.since
        self.totals.core_seconds += seconds * pod.request.milli_cpu / 1000
        self.totals.byte_seconds += seconds * pod.request.memory_bytes
        pod.bill.add(pod.request.milli_cpu, pod.request.memory_bytes, seconds)
        pod.since = self.clock.now

    def _count(self, milli_cpu: int, memory: int) -> None:
        seconds = self.clock.now - self._counted
        self.node_core_seconds += seconds * self.given_milli_cpu / 1000
        self._counted = self.clock.now
        self.given_milli_cpu += milli_cpu
        self.given_bytes += memory

    def _try_at(self, when: float) -> None:
        self.clock.at(when, self._try_waiting)

    def _try_waiting(self) -> None:
        """Place what waits, oldest first; of a shape that fits nowhere nothing more is tried."""
        if not (self._waiting and self._changed):
            return
        self._changed = False
        waiting, self._waiting = self._waiting, []
        refused: list[Request] = []
        for group in waiting:
            pods = [pod for pod in group if not pod.gone]
            if not pods:
                continue
            if self._place(pods, refused):
                pods[0].owner.placed(pods)
            else:
                self._waiting.append(pods)
                for pod in pods:
                    if not pod.refused:
                        pod.refused = True
                        pod.owner.unplaced(pod)

    def _place(self, pods: list[PlacedPod], refused: list[Request]) -> bool:
        """Place all of a group, or none."""
        rows: list[int] = []
        self.meter.count(self.clock.now)
        for (request, avoids), alike in groupby(pods, key=_shape):
            count = sum(1 for _ in alike)
            hopeless = any(_exceeds(request, other) for other in refused)
            with _without(self.table, avoids):
                room = 0 if hopeless else _room(self.table, self._rows, request)
                # Pods of one shape fit in any order or not at all: the engine need not be asked.
                if room >= count:
                    for _ in range(count):
                        placement = self._placer.place(request)
                        assert placement is not None
                        rows.append(placement.row)
            if room < count:
                for row, placed in zip(rows, pods, strict=False):
                    self.table.give(row, placed.request)
                # With others of its group in place, or nodes left out, it says less.
                if room == 0 and not rows and not hopeless and not avoids:
                    refused.append(request)
                return False
        for row, pod in zip(rows, pods, strict=True):
            pod.row, pod.since = row, self.clock.now
            self._training[row][pod.uid] = pod
            self._count(pod.request.milli_cpu, pod.request.memory_bytes)
            self.totals.placements += 1
            self.totals.waited.append((pod.request.milli_cpu, self.clock.now - pod.asked))
        return True

    def settle(self) -> None:
        """The run has ended: bring every sum up to now."""
        self._count(0, 0)
        self.meter.count(self.clock.now)
        for row, pods in enumerate(self._training):
            for pod in pods.values():
                self._account(pod)
            for service, since in self._services[row].items():
                request = service.request
                self.services.add(request.milli_cpu, request.memory_bytes, self.clock.now - since)
                self._services[row][service] = self.clock.now

    def _take_away(self, pod: PlacedPod, why: str) -> None:
        self.release(pod)
        pod.owner.lost(pod, why)

    # Services and nodes

    def start_service(self, service: Service) -> None:
        """A service starts, at the cost of training where it must."""
        self.meter.count(self.clock.now)
        placement = self._packer.place(service.request)
        row = self._make_room(service.request) if placement is None else placement.row
        if row is None:
            self.totals.services_refused += 1
            return
        if placement is None:
            self.table.take(row, service.request)
        self._services[row][service] = self.clock.now
        if service.end < float("inf"):
            self.clock.at(service.end, lambda: self._end_service(row, service))

    def _end_service(self, row: int, service: Service) -> None:
        if service in self._services[row]:
            self._stop_service(row, service)
            self._try_at(self.clock.now + CYCLE)

    def _stop_service(self, row: int, service: Service) -> None:
        request = service.request
        self.meter.count(self.clock.now)
        since = self._services[row].pop(service)
        self.services.add(request.milli_cpu, request.memory_bytes, self.clock.now - since)
        self.table.give(row, request)
        self._changed = True

    def _make_room(self, request: Request) -> int | None:
        best: tuple[int, int, int] | None = None
        victims: list[PlacedPod] = []
        for row in self.table.rows().tolist():
            if not self.table.schedulable[row]:
                continue
            chosen = self._victims(row, request)
            if chosen is None:
                continue
            cost = (len(chosen), sum(pod.request.milli_cpu for pod in chosen), row)
            if best is None or cost < best:
                best, victims = cost, chosen
        if best is None:
            return None
        for pod in victims:
            self.totals.preempted += 1
            self._take_away(pod, "Preempted")
        return best[2]

    def _victims(self, row: int, request: Request) -> list[PlacedPod] | None:
        cpu = request.milli_cpu - int(self.table.free_milli_cpu[row])
        memory = request.memory_bytes - int(self.table.free_memory_bytes[row])
        chosen = []
        largest = sorted(
            self._training[row].values(), key=lambda pod: (-pod.request.milli_cpu, pod.uid)
        )
        for pod in largest:
            if cpu <= 0 and memory <= 0:
                break
            chosen.append(pod)
            cpu -= pod.request.milli_cpu
            memory -= pod.request.memory_bytes
        return chosen if cpu <= 0 and memory <= 0 else None

    def lose_node(self, row: int) -> None:
        """A node fails with all that runs on it, and is back after a while; its services go on
        elsewhere at once.
        """
        if not self.table.schedulable[row]:
            return
        self.totals.node_losses += 1
        self.table.set_schedulable(row, False)
        for pod in list(self._training[row].values()):
            self._take_away(pod, "NodeLost")
        moved = sorted(self._services[row], key=lambda one: (one.start, one.end))
        for service in moved:
            self._stop_service(row, service)
        for service in moved:
            self.start_service(service)
        self.clock.at(self.clock.now + self._repair, lambda: self._repaired(row))

    def _repaired(self, row: int) -> None:
        self.table.set_schedulable(row, True)
        self._changed = True
        self._try_at(self.clock.now)


@contextmanager
def _without(table: NodeTable, nodes: frozenset[str]) -> Iterator[None]:
    """As if these nodes took no pods."""
    rows = [table.row(name) for name in sorted(nodes)]
    closed = [row for row in rows if table.schedulable[row]]
    for row in closed:
        table.set_schedulable(row, False)
    try:
        yield
    finally:
        for row in closed:
            table.set_schedulable(row, True)


def _exceeds(request: Request, other: Request) -> bool:
    """Whether a request needs no less than another one, so that it fits nowhere else."""
    return request.milli_cpu >= other.milli_cpu and request.memory_bytes >= other.memory_bytes


def _room(table: NodeTable, rows: Rows, request: Request) -> int:
    """How many pods of a shape the nodes have room for now."""
    fit = table.free_milli_cpu[rows] // max(1, request.milli_cpu)
    np.minimum(fit, table.free_memory_bytes[rows] // max(1, request.memory_bytes), out=fit)
    return int(fit[table.schedulable[rows]].sum())
