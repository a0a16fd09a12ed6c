"""The planner as one pure object: events in, plans out.

Two rhythms. `place` runs after every few events: it pins gated pods and makes room for GPU pods.
`allocate` runs once per interval: it takes the jobs' queue signals and decides who gets a data
worker more or fewer. Both take the time as an argument and do nothing else than return a plan; the
shell (`penstock.scheduler.service`) carries it out and reports what failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.base.enums import DATA_ROLES, Role
from penstock.scheduler.fragmentation import fragmentation
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.decisions import (
    Action,
    Plan,
    Record,
    SetDeletionCost,
    WriteScale,
)
from penstock.scheduler.model.job_memory import Change, Memory, Running
from penstock.scheduler.model.job_view import JobView
from penstock.scheduler.model.pod_view import PodView
from penstock.scheduler.model.signals import QueueSignals
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.registry import Context, make_policy
from penstock.scheduler.planner.allocation_rounds import Interval, Outcome
from penstock.scheduler.planner.nearness import Nearness
from penstock.scheduler.planner.pod_pinning import Pinner
from penstock.scheduler.planner.preemption import FIRST_TO_GO, Preemption, Standing
from penstock.scheduler.planner.share_groups import members_by_job
from penstock.scheduler.policies.registry import make_allocation_policy
from penstock.scheduler.request import Request

MOST_COSTS: Final = 64
"""Deletion costs that are set in one interval at most."""

_COST_STEPS: Final = 10
"""Grades of a deletion cost on either side of zero: small changes are not worth a call."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a planner decides by.

    Attributes:
        placement: the policy that says on which node; see `placement.registry`.
        allocation: the policy that says which job; see `policies.registry`. `LeastWork` is faster
            on the traces, but takes data workers away from jobs and rests on how long each still
            has to go, which is estimated here; so it is not the default.
        tunes_training: whether the training workers' CPU is tuned as well.
        kinds: the extended resources that count as accelerators.
        seed: for the placement policies that draw lots.
    """

    placement: str = "stranding"
    allocation: str = "ShortestRemaining"
    tunes_training: bool = False
    kinds: tuple[str, ...] = ACCELERATOR_KINDS
    seed: int = 0


class Planner:
    """The state of the cluster, and everything that is remembered between two plans.

    Raises:
        UnknownPolicyError: no policy has the name in the settings.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.state = ClusterState(self.settings.kinds)
        generator = np.random.default_rng(self.settings.seed)
        policy = make_policy(self.settings.placement, Context(generator, {}))
        self._allocation = make_allocation_policy(self.settings.allocation)
        snapshot = self.state.snapshot
        self._placer = Placer(snapshot.columns, policy, eligible=snapshot.eligible)
        self.pinner = Pinner(self.state, self._placer)
        self.room = Preemption(self.state, self._placer)
        self._nearness = Nearness(self.state, self._placer)
        self._interval = Interval(self._allocation, tunes_training=self.settings.tunes_training)
        self.memories: Mapping[str, Memory] = {}
        self._standings: Mapping[str, Standing] = {}
        self._bytes: dict[str, float] = {}

    def place(self, now: float) -> Plan:
        """Pin what is gated, give up pins in vain, make room for GPU pods that lack CPU."""
        room = self.room.plan(now, self._standings)  # first: its reservations bind the pins
        self._note_drained(room, now)
        pins = self.pinner.plan(now, self._bytes)
        dues = [due for due in (room.look_again_seconds, pins.look_again_seconds) if due]
        return Plan(
            room.actions + pins.actions, room.records + pins.records, min(dues, default=None)
        )

    def _note_drained(self, room: Plan, now: float) -> None:
        """A job's tuning has to know of data workers that were taken from it."""
        memories = dict(self.memories)
        for action in room.actions:
            if not isinstance(action, WriteScale) or action.job_uid not in memories:
                continue
            for role in DATA_ROLES:
                left = (action.roles.get(role.value) or {}).get("replicas")
                if left is not None:
                    memory = memories[action.job_uid]
                    memories[action.job_uid] = memory.drained(role, left, now)
        self.memories = memories

    def allocate(self, now: float, signals: Mapping[str, QueueSignals]) -> tuple[Plan, Outcome]:
        """One interval: the jobs' next steps, and the order in which data workers would go."""
        promised: list[str] = []

        def has_room(job: JobView, request: Request, number: int, smaller: bool) -> bool:
            uid = f"interval:{job.uid}:{number}"
            fewest = 1000 if smaller else request.milli_cpu
            for milli_cpu in range(request.milli_cpu, fewest - 1, -1000):
                sized = replace(request, milli_cpu=milli_cpu)
                if self.state.snapshot.place(self._placer, uid, sized, now) is not None:
                    promised.append(uid)
                    return True
            return False

        self.state.snapshot.expire(now)
        try:
            outcome = self._interval.decide(
                now, self.state.jobs, self._running(), signals, self.memories, has_room
            )
        finally:
            for uid in promised:  # the pods will come gated and be placed then
                self.state.snapshot.release(uid)
        self.memories = outcome.memories
        known = {uid: one for uid, one in self._standings.items() if uid in outcome.memories}
        self._standings = {**known, **outcome.standings}
        sharing = members_by_job(self.state.jobs)
        for uid in signals:  # what one data worker sends, to all who share
            members = sharing.get(uid, (uid,))
            sent = sum(signals[one].bytes_per_second for one in members if one in signals)
            senders = sum(
                len(self.state.data_workers(one, role)) for one in members for role in DATA_ROLES
            )
            self._bytes[uid] = sent / max(1, senders)
        for uid in self._bytes.keys() - self.state.jobs.keys():
            del self._bytes[uid]
        actions: list[Action] = []
        for change in outcome.changes:
            job = change.job
            actions.append(
                WriteScale(
                    job.uid, job.namespace, job.name, change.roles, change.reason, change.message
                )
            )
        records = [self._record(now, change) for change in (*outcome.changes, *outcome.notices)]
        nearer = self._nearness.plan(now, _settled(outcome), self._bytes)
        return Plan(
            (*actions, *nearer.actions, *self._costs()), (*records, *nearer.records)
        ), outcome

    def _record(self, now: float, change: Change) -> Record:
        job = change.job
        return Record(
            key=f"{job.uid}:{change.reason}:{now:.3f}",
            time_seconds=now,
            job_uid=job.uid,
            namespace=job.namespace,
            job=job.name,
            policy=self._allocation.name,
            reason=change.reason,
            message=change.message,
            figures=change.figures,
        )

    def _running(self) -> dict[str, Running]:
        found = {}
        for uid in self.state.jobs:
            pods = self.state.data_workers(uid)
            accelerated = self.state.data_workers(uid, Role.ACCELERATED_DATA_WORKER)
            training = [
                pod
                for pod in self.state.of_job.get(uid, {}).values()
                if pod.role == Role.WORKER.in_names and pod.live
            ]
            found[uid] = Running(
                live=len(pods),
                ready=sum(pod.ready for pod in pods),
                cores=max((pod.pod.held.milli_cpu for pod in pods), default=0) // 1000,
                spare_training_cores=self._spare_cores(training),
                accelerated_ready=sum(pod.ready for pod in accelerated),
                since_seconds=max(
                    (pod.ready_seconds for pod in (*pods, *accelerated, *training)),
                    default=float("-inf"),
                ),
            )
        return found

    def _spare_cores(self, training: Sequence[PodView]) -> int:
        """Whole cores that each of these pods could get more on its node.

        None of a node with an accelerator that is free: whoever comes for that needs cores, too.
        """
        columns = self.state.snapshot.columns
        spare = []
        for node, count in Counter(pod.pod.node for pod in training).items():
            if node is None or node not in columns:
                return 0
            row = columns.row(node)
            free = 0 if columns.free_accelerator_milli[row] else columns.free_milli_cpu[row]
            spare.append(max(0, int(free) // (1000 * count)))
        return min(spare, default=0)

    def _costs(self) -> list[SetDeletionCost]:
        """Which data workers should go first: those where accelerators strand for lack of CPU.

        A few grades only, so that a cost is set seldom; one that marks a pod to leave stays.
        """
        columns = self.state.snapshot.columns
        rows = columns.rows()
        graded = np.rint(fragmentation(columns, rows) * _COST_STEPS).astype(int) * _COST_STEPS
        grades = {columns.names[row]: cost for row, cost in zip(rows, graded.tolist(), strict=True)}
        several = {
            (uid, role)
            for uid in self.state.jobs
            for role in DATA_ROLES
            if len(self.state.data_workers(uid, role)) > 1
        }
        changes = [
            SetDeletionCost(view, grades[node])
            for node, pods in sorted(self.state.data_workers_on.items())
            for view in pods.values()
            if node in grades
            and view.deletion_cost not in (grades[node], FIRST_TO_GO)
            and (view.job_uid, view.data_role) in several
        ]
        return changes[:MOST_COSTS]


def _settled(outcome: Outcome) -> set[str]:
    """The jobs that were looked at, are not being tuned, and get nothing else in this interval."""
    changing = {change.job.uid for change in outcome.changes}
    return {
        uid
        for uid in outcome.standings.keys() - outcome.left_alone.keys() - changing
        if outcome.memories[uid].is_settled
    }
