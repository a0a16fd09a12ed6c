"""What the planner knows of the cluster: the snapshot, and the pods and jobs that it decides about.

Kept up to date by watch events; a complete list takes the place of all that went before. Pods that
are neither ours nor wait for a node are in the snapshot alone, as what they hold.

Invariants, checked by a test against a relist after every event:
- `pods` holds exactly the pods that are ours or wait for a node; the indexes are what `pods` says;
- a pod that was pinned, and is not bound, holds its room until `RESERVATION_SECONDS` after the pin,
  whoever pinned it: this planner or the one before it;
- a pod for which kube-scheduler makes room by preemption holds that room as long;
- no object ends the process: one that cannot be read for a reason that nobody foresaw is logged,
  counted in `faults` and left alone (a node counts as gone, a pod stays as it was last seen).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.base.enums import Role
from penstock.scheduler.devices import Devices
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.model.job_view import JobView, read_job
from penstock.scheduler.model.pod_view import PodView, read_view
from penstock.scheduler.objects import NOTHING, Node, Pod, read_node
from penstock.scheduler.placement.holdings import Reservation
from penstock.scheduler.placement.locality import NodeTraffic
from penstock.scheduler.placement.snapshot import RESERVATION_SECONDS, Snapshot

Json = Mapping[str, Any]

logger = logging.getLogger(__name__)

_DEVICES: Final = "devices of "


class ClusterState:
    """Nodes, pods and jobs; `now` is the time of the caller's clock at each event."""

    def __init__(self, kinds: tuple[str, ...] = ACCELERATOR_KINDS) -> None:
        self._kinds = kinds
        self._devices = Devices()
        self._plain: dict[str, Node] = {}
        """The nodes without devices that are handed out through claims."""
        self.snapshot = Snapshot()
        self.pods: dict[str, PodView] = {}
        self.jobs: dict[str, JobView] = {}
        self.gated: dict[str, PodView] = {}
        """Pods that wait for the planner, in no particular order."""
        self.pinned: dict[str, PodView] = {}
        """Pods that were pinned and are not bound."""
        self.waiting: dict[str, PodView] = {}
        """Pods with accelerators, but data workers, for which kube-scheduler has found no node."""
        self.of_job: dict[str, dict[str, PodView]] = {}
        """Pods of our jobs, by the job's uid."""
        self.data_workers_on: dict[str, dict[str, PodView]] = {}
        """Data workers that are there to stay, by node."""
        self.problems: dict[str, str] = {}
        """Nodes that cannot be read, and why."""
        self.faults: Counter[str] = Counter()
        """Failures to read an object that nobody foresaw, by kind."""

    def _fault(self, kind: str, document: Json) -> None:
        metadata = document["metadata"]
        name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}".lstrip("/")
        logger.exception("%s %s cannot be read and is left alone", kind, name)
        self.faults[kind] += 1

    # Nodes

    def put_node(self, document: Json) -> None:
        """A node was added or changed; one that cannot be read counts as gone."""
        name = document["metadata"]["name"]
        try:
            node = read_node(document, self._kinds)
        except InvalidRequestError as error:
            self.problems[name] = str(error)
            self.snapshot.remove_node(name)
            return
        except Exception as error:  # noqa: BLE001  one bad object must not stop the others
            self._fault("node", document)
            self.problems[name] = f"{type(error).__name__}: {error}"
            self.snapshot.remove_node(name)
            return
        self.problems.pop(name, None)
        self._plain[name] = node
        self.snapshot.upsert_node(self._with_devices(node))

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        self.problems.pop(name, None)
        self._plain.pop(name, None)
        self.snapshot.remove_node(name)

    def replace_devices(self, devices: Devices) -> None:
        """What claims hand out, complete. All that is taken on a node is held by one "pod"."""
        before, self._devices = self._devices, devices
        for name in before.there.keys() | devices.there.keys():
            if name in self._plain and name in self.snapshot.nodes:
                self.snapshot.upsert_node(self._with_devices(self._plain[name]))
        for name in before.taken.keys() - devices.taken.keys():
            self.snapshot.remove_pod(_DEVICES + name)
        for name, held in devices.taken.items():
            self.snapshot.upsert_pod(Pod(_DEVICES + name, name, held))

    def _with_devices(self, node: Node) -> Node:
        """A device that is an extended resource as well is counted as that alone."""
        found = self._devices.there.get(node.name, NOTHING)
        if not found.accelerators or node.allocatable.accelerators:
            return node
        most = None if node.most_pods is None else node.most_pods + 1  # what holds them is no pod
        return replace(node, allocatable=node.allocatable.plus(found), most_pods=most)

    def replace_nodes(self, documents: Iterable[Json]) -> None:
        """The complete list of nodes."""
        seen = set()
        for document in documents:
            seen.add(document["metadata"]["name"])
            self.put_node(document)
        for name in (set(self.snapshot.nodes) | set(self.problems)) - seen:
            self.remove_node(name)

    # Pods

    def put_pod(self, document: Json, now: float) -> None:
        """A pod was added or changed."""
        try:
            view = read_view(document, self._kinds)
        except Exception:  # noqa: BLE001  one bad object must not stop the others
            self._fault("pod", document)
            return
        self.put_view(view, now)

    def put_view(self, view: PodView, now: float) -> None:
        """A pod was added or changed."""
        known = self.pods.get(view.uid)
        if known == view:
            return
        if known is not None:
            self._unlink(known)
        self.snapshot.upsert_pod(view.pod)
        ours = bool(view.role) and not view.pod.terminal
        if not (ours or view.waits):
            return
        self.pods[view.uid] = view
        if ours:
            self.of_job.setdefault(view.job_uid, {})[view.uid] = view
        if view.is_data_worker and view.live and view.pod.node is not None:
            self.data_workers_on.setdefault(view.pod.node, {})[view.uid] = view
        if view.waits:
            self._link_waiting(view, now)
        else:
            self.snapshot.release(view.uid)

    def _link_waiting(self, view: PodView, now: float) -> None:
        if view.gated:
            self.gated[view.uid] = view
            return  # its reservation, if it has one, is that of a pin on its way
        if view.pinned_to:
            self.pinned[view.uid] = view
            self._hold(view, view.pinned_to, min(view.pinned_seconds, now), now)
        elif view.nominated:
            self._hold(view, view.nominated, now, now)
        elif view.held_back or view.is_data_worker:
            return  # others make room for a data worker that has an accelerator, never it for them
        elif view.request is not None and view.request.accelerators:
            self.waiting[view.uid] = view

    def _hold(self, view: PodView, node: str, since: float, now: float) -> None:
        expires = since + RESERVATION_SECONDS
        if expires > now:
            self.snapshot.reserve(Reservation(view.uid, node, view.pod.held, expires))

    def _unlink(self, view: PodView) -> None:
        self.pods.pop(view.uid, None)
        for index in (self.gated, self.pinned, self.waiting):
            index.pop(view.uid, None)
        for groups, key in ((self.of_job, view.job_uid), (self.data_workers_on, view.pod.node)):
            group = groups.get(key or "")
            if group is not None and group.pop(view.uid, None) is not None and not group:
                del groups[key or ""]

    def remove_pod(self, uid: str) -> None:
        """A pod is gone."""
        known = self.pods.get(uid)
        if known is not None:
            self._unlink(known)
        self.snapshot.remove_pod(uid)

    def replace_pods(self, documents: Iterable[Json], now: float) -> None:
        """The complete list of pods."""
        seen = set()
        for document in documents:
            seen.add(document["metadata"]["uid"])
            self.put_pod(document, now)
        gone = (set(self.pods) | set(self.snapshot.bound)) - seen
        for uid in gone:
            if not uid.startswith(_DEVICES):
                self.remove_pod(uid)

    # Jobs

    def put_job(self, document: Json) -> None:
        """A job was added or changed; one that cannot be read is left alone."""
        try:
            job = read_job(document)
        except Exception:  # noqa: BLE001  one bad object must not stop the others
            self._fault("job", document)
            self.remove_job(document["metadata"]["uid"])
            return
        self.jobs[job.uid] = job

    def remove_job(self, uid: str) -> None:
        """A job is gone."""
        self.jobs.pop(uid, None)

    def replace_jobs(self, documents: Iterable[Json]) -> None:
        """The complete list of jobs."""
        seen = set()
        for document in documents:
            seen.add(document["metadata"]["uid"])
            self.put_job(document)
        for uid in self.jobs.keys() - seen:
            self.remove_job(uid)

    # What follows from them

    def data_workers(self, job_uid: str, role: Role = Role.DATA_WORKER) -> list[PodView]:
        """The job's data workers of a role that are there to stay, by rank."""
        pods = self.of_job.get(job_uid, {}).values()
        found = [view for view in pods if view.data_role is role and view.live]
        return sorted(found, key=lambda view: (view.rank, view.incarnation))

    def nodes_of(self, job_uid: str) -> frozenset[str]:
        """The nodes that run the job's training workers."""
        return frozenset(
            view.pod.node
            for view in self.of_job.get(job_uid, {}).values()
            if view.role == "worker" and view.live and view.pod.node is not None
        )

    def traffic(self) -> dict[str, NodeTraffic]:
        """What uses the network of each node: distributed training, and data workers far away.

        A data worker is far away on a node without a training worker of its job. Nodes that carry
        neither are left out. O(our pods).
        """
        distributed: dict[str, int] = {}
        remote: dict[str, int] = {}
        for uid, pods in self.of_job.items():
            own = self.nodes_of(uid)
            training = [view for view in pods.values() if view.role == "worker" and view.live]
            for view in pods.values():
                node = view.pod.node
                if node is None or not view.live:
                    continue
                if view.role == "worker" and len(training) > 1:
                    distributed[node] = distributed.get(node, 0) + 1
                elif view.is_data_worker and node not in own:
                    remote[node] = remote.get(node, 0) + 1
        return {
            node: NodeTraffic(distributed.get(node, 0), remote.get(node, 0))
            for node in distributed.keys() | remote.keys()
        }
