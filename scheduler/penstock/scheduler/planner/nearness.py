"""Data workers that move nearer to the training that they feed, one at a time (pure).

GoldMiner (SIGMOD 2023, section 3.4.2) migrates data workers for a better placement as a cluster
changes. A data worker was placed where there was room; when a node of its job's own training has
room later, it moves there if it sends so much that nearness counts: a new one is started there, and
the old one drains when the new one makes batches.

Guarantees:
- only a job moves that is not being tuned and whose data workers are all ready, and only to a node
  to which the pinning would bring it now, at no more fragmentation than it allows;
- nothing moves while a GPU pod waits;
- only where that has been so for `LASTING_INTERVALS` in a row, for a job at most once in
  `MOVE_PAUSE_SECONDS`, and never two data workers of a cluster at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import DATA_ROLES
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.decisions import Plan, Reason, Record, WriteScale
from penstock.scheduler.model.pod_view import PodView
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.locality import MANY_BYTES_PER_SECOND, Locality
from penstock.scheduler.planner.share_groups import members_by_job
from penstock.scheduler.policies.allocate import MOVE_PAUSE_SECONDS

LASTING_INTERVALS: Final = 3
"""For so many intervals in a row a data worker must have had room nearer."""

PATIENCE_SECONDS: Final = 120.0
"""After this time a move that did not come about holds up no other."""

_NO_PLAN: Final = Plan()


@dataclass(frozen=True, slots=True)
class _Move:
    pod: PodView
    until: float


class Nearness:
    """Moves data workers; remembers which were far for how long, and which moved last."""

    def __init__(self, state: ClusterState, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self._intervals: dict[str, int] = {}
        """By job: intervals in a row in which one of its data workers had room nearer."""
        self._moved: dict[str, float] = {}
        self._under_way: _Move | None = None

    def plan(
        self, now: float, settled: Collection[str], bytes_per_second: Mapping[str, float]
    ) -> Plan:
        """At most one move.

        Args:
            now: the present time.
            settled: uids of jobs that are not being tuned.
            bytes_per_second: by job uid, what one data worker of it sends.
        """
        near = {}
        much = {
            uid: sent
            for uid in settled
            if not self._state.waiting
            and (sent := bytes_per_second.get(uid, 0.0)) >= MANY_BYTES_PER_SECOND
        }
        traffic = self._state.traffic() if much else {}
        sharing = members_by_job(self._state.jobs) if much else {}
        for uid, sent in much.items():
            own = self._nodes_of(sharing.get(uid, (uid,)))
            if own and (found := self._nearer(uid, Locality(own, sent, traffic))) is not None:
                near[uid] = found
        self._intervals = {uid: self._intervals.get(uid, 0) + 1 for uid in near}
        self._moved = {uid: at for uid, at in self._moved.items() if now - at < MOVE_PAUSE_SECONDS}
        if self._is_moving(now):
            return _NO_PLAN
        ready = [
            uid
            for uid, count in self._intervals.items()
            if count >= LASTING_INTERVALS and uid not in self._moved
        ]
        if not ready:
            return _NO_PLAN
        uid = max(ready, key=lambda one: (bytes_per_second[one], one))
        pod, node = near[uid]
        self._moved[uid] = now
        self._under_way = _Move(pod, now + PATIENCE_SECONDS)
        return self._move(now, pod, node, bytes_per_second[uid])

    def _nodes_of(self, jobs: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*map(self._state.nodes_of, jobs))

    def _nearer(self, uid: str, near: Locality) -> tuple[PodView, str] | None:
        """A data worker of a job that is far from its training, and where it could go instead."""
        workers = [one for role in DATA_ROLES for one in self._state.data_workers(uid, role)]
        if not all(one.ready for one in workers):
            return None
        for pod in workers:
            if pod.pod.node in near.job_nodes or pod.request is None:
                continue
            placement = self._placer.look(pod.request, near)
            if placement is not None and placement.node in near.job_nodes:
                return pod, placement.node
        return None

    def _is_moving(self, now: float) -> bool:
        """Whether the move before has not come to its end: a successor makes batches."""
        move = self._under_way
        if move is None or now >= move.until or move.pod.data_role is None:
            return False
        there = self._state.data_workers(move.pod.job_uid, move.pod.data_role)
        same = [one for one in there if one.rank == move.pod.rank]
        arrived = any(one.incarnation > move.pod.incarnation and one.ready for one in same)
        return bool(same) and not arrived

    def _move(self, now: float, pod: PodView, node: str, sent: float) -> Plan:
        assert pod.data_role is not None
        away = pod.pod.node or ""
        target = {"minIncarnation": pod.incarnation + 1, "avoidNodes": [away]}
        roles = {pod.data_role.value: {"ranks": {str(pod.rank): target}}}
        why = (
            f"rank {pod.rank} sends {sent / 1e6:.0f} MB/s from {away}: {node}, where the job"
            " trains, has room for it"
        )
        scale = WriteScale(pod.job_uid, pod.namespace, pod.job, roles, Reason.NEARER, why)
        record = Record(
            key=f"{pod.uid}:{Reason.NEARER}:{now:.3f}",
            time_seconds=now,
            job_uid=pod.job_uid,
            namespace=pod.namespace,
            job=pod.job,
            policy=self._placer.policy.name,
            reason=Reason.NEARER,
            message=why,
            node=node,
            figures={"bytes_per_second": sent},
            view=pod,
        )
        return Plan((scale,), (record,))
