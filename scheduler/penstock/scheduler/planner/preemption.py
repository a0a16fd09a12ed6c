"""Room for a GPU pod that cannot start for lack of it: what leaves, and where (pure).

kube-scheduler makes room itself where it may preempt (data workers have a priority below zero); the
planner then keeps the freed room clear until the pod is bound. Where kube-scheduler may not or does
not, the planner asks: `penstock.scheduler.reclaim` says what one node would have to give up, and
the node that gives up least does. What leaves, leaves through a Scale, so that the controller
drains it and the ledger takes its batches back:

* surplus cores of training workers are cut from their ranks;
* a move raises the rank's least incarnation and names the node to avoid: the controller starts the
  new data worker, and drains the old one when the new one is ready;
* a drain lowers the number of data workers, after the pod's deletion cost has been set so low that
  it is the one to go.

Guarantees: nothing is asked for a pod that fits somewhere as it is; nobody gives up anything where
even everything would not do; a pod is asked for once in `PATIENCE_SECONDS`, and its room is kept
clear of new data workers for as long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.base.enums import Role
from penstock.base.quantity import format_milli_cpu
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.decisions import (
    Action,
    Plan,
    Reason,
    Record,
    SetDeletionCost,
    WriteScale,
)
from penstock.scheduler.model.pod_view import PodView
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.holdings import Reservation
from penstock.scheduler.reclaim import DataWorker, Reclaim, Surplus, reclaim
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request

GRACE_SECONDS: Final = 1.0
"""How long a pod must have been unschedulable: kube-scheduler may be about to preempt for it."""

PATIENCE_SECONDS: Final = 120.0
"""How long room is kept clear for a pod, and how long it is before it is made for it again."""

MOST_NODES: Final = 32
"""Nodes that are asked what they would give up: those that lack the least."""

FIRST_TO_GO: Final = -10_000
"""Deletion cost of a data worker that has been chosen to leave."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the allocation knows of one job: its key, and what its training workers can spare."""

    key: float = 0.0
    surplus_milli_cpu: int = 0
    """Of each training worker."""


@dataclass(frozen=True, slots=True)
class _Offer:
    node: str
    plan: Reclaim
    workers: Mapping[str, PodView]
    training: Mapping[str, PodView]

    @property
    def cost(self) -> tuple[int, int, int, str]:
        return (len(self.plan.drain), len(self.plan.move), self.plan.freed_milli_cpu, self.node)

    @property
    def what(self) -> str:
        """What the pod gets there, for people."""
        return "the accelerators" if self.plan.freed_accelerators else "the cores"


class Preemption:
    """Makes room, one GPU pod after the other; remembers for whom, and whom it moved."""

    def __init__(self, state: ClusterState, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self.made: dict[str, tuple[str, float]] = {}
        """By pod: the node where room is made for it, and until when it is kept."""
        self._moved: dict[str, float] = {}

    def plan(self, now: float, standings: Mapping[str, Standing]) -> Plan:
        """What to ask for, for every GPU pod that waits in vain."""
        self._keep_clear(now)
        actions: list[Action] = []
        records: list[Record] = []
        dues: list[float] = []
        waiting = [
            view
            for view in self._state.waiting.values()
            if view.unschedulable_seconds is not None and view.uid not in self.made
        ]
        for view in sorted(waiting, key=lambda one: (-one.priority, one.created_seconds, one.uid)):
            assert view.request is not None
            assert view.unschedulable_seconds is not None
            due = view.unschedulable_seconds + GRACE_SECONDS
            if due > now:
                dues.append(due)
                continue
            if float(self._placer.scores(view.request).max(initial=-np.inf)) > -np.inf:
                continue  # it fits as it is: kube-scheduler will see
            offer = self._best_offer(view, view.request, now, standings)
            if offer is None:
                continue
            self._reserve(view, offer.node, now + PATIENCE_SECONDS)
            self.made[view.uid] = (offer.node, now + PATIENCE_SECONDS)
            for job in {worker.job for worker in offer.plan.move}:
                self._moved[job] = now
            actions.extend(self._actions(view, offer))
            records.append(self._record(view, offer, now))
        return Plan(tuple(actions), tuple(records), min(dues, default=None))

    def _keep_clear(self, now: float) -> None:
        """Hold the room of pods that are still on their way to it; forget the others."""
        for uid, (node, until) in list(self.made.items()):
            view = self._state.waiting.get(uid)
            if view is None or until <= now:
                del self.made[uid]
                if view is not None:
                    self._state.snapshot.release(uid)
            elif uid not in self._state.snapshot.reservations:
                self._reserve(view, node, until)

    def _reserve(self, view: PodView, node: str, until: float) -> None:
        held = view.pod.held
        self._state.snapshot.reserve(Reservation(view.uid, node, held, until))

    def _best_offer(
        self, view: PodView, request: Request, now: float, standings: Mapping[str, Standing]
    ) -> _Offer | None:
        names = self._state.data_workers_on.keys() | self._training_nodes(standings)
        taken = {node for node, _ in self.made.values()}  # what leaves there is counted already
        lacking = ((self._lacking(node, request), node) for node in names - taken)
        nearest = sorted((most, node) for most, node in lacking if most is not None)
        offers = [
            offer
            for _, node in nearest[:MOST_NODES]
            if (offer := self._offer(node, request, now, standings)) is not None
        ]
        return min(offers, key=lambda one: one.cost, default=None)

    def _lacking(self, node: str, request: Request) -> tuple[int, int] | None:
        """Accelerators and milli-cores that a node lacks; None where it could not take it anyhow.

        Its accelerators must be free already, or be those of accelerated data workers.
        """
        snapshot, columns = self._state.snapshot, self._state.snapshot.columns
        codes = columns.kinds.codes(request.accelerator_kinds)
        if node not in columns or not codes:
            return None
        row = columns.row(node)
        rows = np.array([row], dtype=np.intp)
        workers = self._state.data_workers_on.get(node, {}).values()
        lacking = self._lacking_accelerators(row, request)
        if (
            lacking > sum(_accelerators(pod, request) for pod in workers)
            or not columns.schedulable[row]
            or not snapshot.eligible(request.constraints, rows)[0]
        ):
            return None
        return lacking, max(0, request.milli_cpu - int(columns.free_milli_cpu[row]))

    def _lacking_accelerators(self, row: int, request: Request) -> int:
        columns = self._state.snapshot.columns
        kinds = np.isin(columns.device_kind[row], columns.kinds.codes(request.accelerator_kinds))
        free = (columns.device_free[row] >= request.accelerator_milli) & kinds
        return max(0, request.accelerators - int(free.sum()))

    def _training_nodes(self, standings: Mapping[str, Standing]) -> set[str]:
        """Nodes with training workers that can spare some CPU."""
        rich = (uid for uid, standing in standings.items() if standing.surplus_milli_cpu > 0)
        return {node for uid in rich for node in self._state.nodes_of(uid)}

    def _offer(
        self, node: str, request: Request, now: float, standings: Mapping[str, Standing]
    ) -> _Offer | None:
        """What the node would give up; None where it lacks more than data workers can give."""
        columns = self._state.snapshot.columns
        row = columns.row(node)
        lacking = max(0, request.milli_cpu - int(columns.free_milli_cpu[row]))
        short = max(0, request.memory_bytes - int(columns.free_memory_bytes[row]))
        workers = self._state.data_workers_on.get(node, {})
        training = self._training_on(node, standings)
        found = reclaim(
            lacking,
            [
                Surplus(uid, standings[pod.job_uid].surplus_milli_cpu)
                for uid, pod in training.items()
            ],
            [self._worker(pod, request, now, standings) for pod in workers.values()],
            _Elsewhere(self._state, self._placer, node, workers),
            accelerators=self._lacking_accelerators(row, request),
        )
        if found is None or not (found.shrink or found.move or found.drain):
            return None
        freed = sum(workers[one.pod].pod.held.memory_bytes for one in (*found.move, *found.drain))
        return _Offer(node, found, workers, training) if freed >= short else None

    def _training_on(self, node: str, standings: Mapping[str, Standing]) -> dict[str, PodView]:
        return {
            uid: pod
            for job, standing in standings.items()
            if standing.surplus_milli_cpu > 0
            for uid, pod in self._state.of_job.get(job, {}).items()
            if pod.role == Role.WORKER.in_names and pod.live and pod.pod.node == node
        }

    def _worker(
        self, pod: PodView, request: Request, now: float, standings: Mapping[str, Standing]
    ) -> DataWorker:
        role = pod.data_role or Role.DATA_WORKER
        moved = now - self._moved.get(pod.job_uid, float("-inf"))
        return DataWorker(
            pod=pod.uid,
            job=pod.job_uid,
            milli_cpu=pod.pod.held.milli_cpu,
            key=standings.get(pod.job_uid, Standing()).key,
            workers_of_job=len(self._state.data_workers(pod.job_uid, role)),
            moved_seconds_ago=moved,
            accelerators=_accelerators(pod, request),
        )

    def _actions(self, view: PodView, offer: _Offer) -> Iterable[Action]:
        roles: dict[str, dict[str, Any]] = defaultdict(dict)
        jobs: dict[str, PodView] = {}
        for part in offer.plan.shrink:
            pod = offer.training[part.pod]
            left = format_milli_cpu(pod.pod.held.milli_cpu - part.milli_cpu)
            ranks = roles[pod.job_uid].setdefault(Role.WORKER.value, {}).setdefault("ranks", {})
            ranks[str(pod.rank)] = {"cpu": left}
            jobs[pod.job_uid] = pod
        for worker in offer.plan.move:
            pod = offer.workers[worker.pod]
            data = roles[pod.job_uid].setdefault(_role(pod), {})
            data.setdefault("ranks", {})[str(pod.rank)] = {
                "minIncarnation": pod.incarnation + 1,
                "avoidNodes": [offer.node],
            }
            jobs[pod.job_uid] = pod
        drained: dict[tuple[str, Role], int] = defaultdict(int)
        for worker in offer.plan.drain:
            pod = offer.workers[worker.pod]
            drained[pod.job_uid, Role(_role(pod))] += 1
            jobs[pod.job_uid] = pod
            yield SetDeletionCost(pod, FIRST_TO_GO)
        for (uid, role), count in drained.items():
            left_over = max(0, len(self._state.data_workers(uid, role)) - count)
            roles[uid].setdefault(role.value, {})["replicas"] = left_over
        for uid, pod in jobs.items():
            yield WriteScale(
                job_uid=uid,
                namespace=pod.namespace,
                job=pod.job,
                roles=roles[uid],
                reason=Reason.ROOM_FOR_ACCELERATORS,
                message=f"{view.namespace}/{view.name} needs {offer.what} on {offer.node}",
            )

    def _record(self, view: PodView, offer: _Offer, now: float) -> Record:
        plan = offer.plan
        parts = [
            f"{len(plan.move)} data workers move away" if plan.move else "",
            f"{len(plan.drain)} data workers are drained" if plan.drain else "",
            f"{len(plan.shrink)} training workers give up cores" if plan.shrink else "",
        ]
        why = f"room is made on {offer.node}: {', '.join(part for part in parts if part)}"
        return Record(
            key=f"{view.uid}:{Reason.ROOM_FOR_ACCELERATORS}:{now:.3f}",
            time_seconds=now,
            job_uid=view.job_uid or view.uid,
            namespace=view.namespace,
            job=view.job,
            policy=self._placer.policy.name,
            reason=Reason.ROOM_FOR_ACCELERATORS,
            message=why,
            node=offer.node,
            figures={
                "freed_milli_cpu": float(plan.freed_milli_cpu),
                "freed_accelerators": float(plan.freed_accelerators),
                "moved": float(len(plan.move)),
                "drained": float(len(plan.drain)),
            },
            view=view,
        )


def _accelerators(pod: PodView, request: Request) -> int:
    """What a data worker holds of the accelerators that the request would take."""
    kinds = request.accelerator_kinds
    held = pod.pod.held.accelerators
    return sum(count for kind, count in held if not kinds or kind in kinds)


def _role(pod: PodView) -> str:
    return (pod.data_role or Role.DATA_WORKER).value


class _Elsewhere:
    """Whether a data worker fits on some other node; room that was promised once is gone."""

    def __init__(
        self, state: ClusterState, placer: Placer, node: str, workers: Mapping[str, PodView]
    ) -> None:
        self._state = state
        self._placer = placer
        self._row = state.snapshot.columns.row(node)
        self._workers = workers
        self._taken: dict[int, tuple[int, int, int]] = {}

    def __call__(self, worker: DataWorker) -> bool:
        request = self._workers[worker.pod].request
        if request is None:
            return False
        columns = self._state.snapshot.columns
        scores = self._placer.scores(request)
        for row in np.argsort(-scores, kind="stable").tolist():
            if scores[row] == -np.inf:
                return False
            cpu, memory, devices = self._taken.get(row, (0, 0, 0))
            left = int(columns.free_accelerator_milli[row]) // WHOLE_DEVICE_MILLI - devices
            enough = (
                columns.free_milli_cpu[row] - cpu >= request.milli_cpu
                and columns.free_memory_bytes[row] - memory >= request.memory_bytes
                and left >= request.accelerators
            )
            if row != self._row and enough:
                self._taken[row] = (
                    cpu + request.milli_cpu,
                    memory + request.memory_bytes,
                    devices + request.accelerators,
                )
                return True
        return False
