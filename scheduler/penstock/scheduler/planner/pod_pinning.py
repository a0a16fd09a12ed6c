"""Gate and pin: which node each gated pod goes to, and which pins were in vain (pure).

Guarantees:
- a pod is pinned to a node that has room for it now, all reservations counted;
- a pod that fits nowhere stays gated and is tried again at every pass; a data worker of several
  cores for which there is only a smaller gap is asked for once in the size of the largest gap, by a
  Scale for its rank: small ones may use fragments (GoldMiner, section 3.4.1);
- a pin that nobody answered for `RESERVATION_SECONDS` is forgotten: if the pod is gated still, it
  is planned anew, so that no gate stays for ever;
- a pin that kube-scheduler finds unschedulable is given up `PIN_PATIENCE_SECONDS` after it was
  made: a gate cannot be put back, so the pod is deleted, its successor comes with a gate of its
  own, and the node is shunned for a while, because it is not what the snapshot takes it for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.decisions import (
    Action,
    DeletePod,
    Pin,
    Plan,
    Reason,
    Record,
    WriteScale,
)
from penstock.scheduler.model.pod_view import PodView
from penstock.scheduler.placement.engine import Placement, Placer
from penstock.scheduler.placement.locality import Locality, NodeTraffic
from penstock.scheduler.placement.snapshot import RESERVATION_SECONDS
from penstock.scheduler.planner.share_groups import members_by_job
from penstock.scheduler.request import Request

PIN_PATIENCE_SECONDS: Final = 10.0
"""How old a pin is that is given up because kube-scheduler finds it unschedulable."""

SHUN_SECONDS: Final = 60.0
"""For how long nothing is placed on a node that did not take a pin."""

TRAFFIC_SECONDS: Final = 1.0
"""How old the picture of the network may be on which a placement rests."""

_MAX_TOLD: Final = 10_000


class Pinner:
    """Places gated pods by one policy; remembers what is on its way."""

    def __init__(self, state: ClusterState, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self.on_its_way: dict[str, float] = {}
        """Pods whose pin was decided, and when its room is let go again."""
        self._deleting: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._shrunk: dict[str, float] = {}
        self._seen: set[str] = set()
        self._traffic: Mapping[str, NodeTraffic] = {}
        self._traffic_seconds = float("-inf")

    def plan(self, now: float, bytes_per_second: Mapping[str, float]) -> Plan:
        """Decide about every pod that is gated or pinned.

        Args:
            now: the present time.
            bytes_per_second: by job uid, what one data worker of it sends.
        """
        self._state.snapshot.expire(now)
        self._forget(now)
        actions: list[Action] = []
        records: list[Record] = []
        self._give_up(now, actions, records)
        self._observe_arrivals()
        hopeless: set[Request] = set()
        near: dict[str, Locality] = {}
        order = sorted(
            (
                view
                for uid, view in self._state.gated.items()
                if uid not in self.on_its_way and uid not in self._shrunk
            ),
            key=lambda view: (-view.priority, view.created_seconds, view.namespace, view.name),
        )
        if order and now - self._traffic_seconds >= TRAFFIC_SECONDS:
            self._traffic, self._traffic_seconds = self._state.traffic(), now
        sharing = members_by_job(self._state.jobs) if order else {}
        for view in order:
            if view.request is None:
                self._tell(view, Reason.UNREADABLE, view.problem, now, records)
                continue
            placement = None
            if view.request not in hopeless:
                job = view.job_uid
                if job not in near:
                    members = sharing.get(job, (job,))
                    nodes = frozenset().union(*map(self._state.nodes_of, members))
                    near[job] = Locality(nodes, bytes_per_second.get(job, 0.0), self._traffic)
                placement = self._state.snapshot.place(
                    self._placer, view.uid, view.request, now, near[job], with_runner_up=True
                )
            if placement is None:
                hopeless.add(view.request)
                if cores := self._fragment(view, view.request, now):
                    self._shrink(view, cores, now, actions, records)
                    continue
                why = f"no node has room for {_asked(view.request)}; it stays gated until one has"
                self._tell(view, Reason.NO_ROOM, why, now, records)
                continue
            held = self._state.snapshot.reservations[view.uid]
            self.on_its_way[view.uid] = held.expires_seconds
            self._told.pop(view.uid, None)
            actions.append(Pin(view, placement.node))
            records.append(self._placed(view, placement, now))
        return Plan(tuple(actions), tuple(records), self._next_look(now))

    def _fragment(self, view: PodView, request: Request, now: float) -> int:
        """The cores of the largest gap for a data worker that fits nowhere; 0: there is none.

        The gap is held until the pod has made room for its smaller successor, so that no other is
        shrunk to the same one; after that time the pod is looked at anew.
        """
        job = self._state.jobs.get(view.job_uid)
        ours = job is not None and not job.hands_off
        if not ours or not view.is_data_worker:
            return 0
        for cores in range(-(-request.milli_cpu // 1000) - 1, 0, -1):
            smaller = replace(request, milli_cpu=1000 * cores)
            if self._state.snapshot.place(self._placer, view.uid, smaller, now) is not None:
                self._shrunk[view.uid] = now + RESERVATION_SECONDS
                return cores
        return 0

    def _shrink(
        self, view: PodView, cores: int, now: float, actions: list[Action], records: list[Record]
    ) -> None:
        why = f"nowhere is room for {_asked(view.request)}: rank {view.rank} makes do with {cores}"
        assert view.data_role is not None
        roles = {view.data_role.value: {"ranks": {str(view.rank): {"cpu": str(cores)}}}}
        actions.append(
            WriteScale(view.job_uid, view.namespace, view.job, roles, Reason.FRAGMENT, why)
        )
        records.append(self._record(view, Reason.FRAGMENT, why, now))

    def failed(self, uid: str) -> None:
        """A pin was not carried out: its room is free again, and the pod is planned anew."""
        if self.on_its_way.pop(uid, None) is not None:
            self._state.snapshot.release(uid)

    def not_deleted(self, uid: str) -> None:
        """A pod that was to be deleted is still there."""
        self._deleting.pop(uid, None)

    def _observe_arrivals(self) -> None:
        """Let the policy know what is asked for, each pod once, by us or by others."""
        asking = {**self._state.gated, **self._state.waiting}
        for uid in asking.keys() - self._seen:
            request = asking[uid].request
            if request is not None:
                self._placer.observe(request)
        self._seen = set(asking)

    def _forget(self, now: float) -> None:
        for uid, until in list(self.on_its_way.items()):
            if until <= now or uid not in self._state.gated:
                del self.on_its_way[uid]
        for memory in (self._told, self._deleting):
            for uid in [uid for uid in memory if uid not in self._state.pods]:
                del memory[uid]
        for uid, until in list(self._shrunk.items()):
            if until <= now or uid not in self._state.pods:
                del self._shrunk[uid]
                self._state.snapshot.release(uid)
        for uid in [uid for uid, until in self._deleting.items() if until <= now]:
            del self._deleting[uid]

    def _give_up(self, now: float, actions: list[Action], records: list[Record]) -> None:
        for view in list(self._state.pinned.values()):
            due = min(view.pinned_seconds, now) + PIN_PATIENCE_SECONDS
            if view.unschedulable_seconds is None or due > now or view.uid in self._deleting:
                continue
            self._deleting[view.uid] = now + SHUN_SECONDS
            self._state.snapshot.release(view.uid)
            self._state.snapshot.shun(view.pinned_to, now + SHUN_SECONDS)
            actions.append(DeletePod(view))
            why = (
                f"kube-scheduler does not bind it to {view.pinned_to}, to which it was pinned"
                f" {now - view.pinned_seconds:.0f} s ago: a new one is placed elsewhere"
            )
            records.append(self._record(view, Reason.PIN_UNSCHEDULABLE, why, now))

    def _next_look(self, now: float) -> float | None:
        """When something changes by the passing of time alone."""
        dues = [view.pinned_seconds + PIN_PATIENCE_SECONDS for view in self._state.pinned.values()]
        dues += [held.expires_seconds for held in self._state.snapshot.reservations.values()]
        later = [due for due in dues if due > now]
        return min(later, default=None)

    def _tell(
        self, view: PodView, reason: Reason, why: str, now: float, records: list[Record]
    ) -> None:
        """Say once of each pod why it waits."""
        if self._told.get(view.uid) != why and len(self._told) < _MAX_TOLD:
            self._told[view.uid] = why
            records.append(self._record(view, reason, why, now))

    def _placed(self, view: PodView, placement: Placement, now: float) -> Record:
        name = self._placer.policy.name
        why = f"node {placement.node}, score {placement.score:+.3f} by {name}"
        figures = {"score": placement.score}
        if placement.runner_up is not None and placement.runner_up_score is not None:
            why += f"; next best {placement.runner_up}, {placement.runner_up_score:+.3f}"
            figures["runner_up_score"] = placement.runner_up_score
        else:
            why += "; no other node has room"
        found = self._record(view, Reason.PLACED, why, now)
        return replace(
            found, node=placement.node, runner_up=placement.runner_up or "", figures=figures
        )

    def _record(self, view: PodView, reason: Reason, why: str, now: float) -> Record:
        return Record(
            key=f"{view.uid}:{reason}:{now:.3f}",
            time_seconds=now,
            job_uid=view.job_uid,
            namespace=view.namespace,
            job=view.job,
            policy=self._placer.policy.name,
            reason=reason,
            message=why,
            view=view,
        )


def _asked(request: Request | None) -> str:
    assert request is not None
    text = f"{request.milli_cpu / 1000:g} cores and {request.memory_bytes / 2**30:.3g} GiB"
    if request.accelerators:
        text += f" with {request.accelerators} accelerators"
    return text
