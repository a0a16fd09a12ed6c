"""A small cluster in memory: an API server's objects, a kube-scheduler, and a planner beside it.

What the planner is told arrives late and, between nodes and pods, in any order; what it does may be
refused, or be done without the answer coming back. A planner may be started anew at any time.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

from penstock.base.quantity import parse_bytes, parse_milli_cpu
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.decisions import DeletePod, Pin
from penstock.scheduler.model.pod_view import PINNED_AT, PINNED_NODE, pinned_terms
from penstock.scheduler.planner.planner import Planner
from tests.scheduler.planner.documents import GPU, Json, node, pod

SINCE = "2027-01-01T00:00:00Z"
START = 1_800_000_000.0


class World:
    """Objects by name, events on their way, and the time."""

    def __init__(self) -> None:
        self.now = START
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.node_events: deque[tuple[str, Json]] = deque()
        self.pod_events: deque[tuple[str, Json]] = deque()
        self.planner = Planner()
        self.made = 0

    # What happens to the cluster

    def put_node(self, name: str, cpu: int, gpus: int, cordoned: bool) -> None:
        self.nodes[name] = node(name, str(cpu), gpus, pods=5, unschedulable=cordoned)
        self.node_events.append(("PUT", copy.deepcopy(self.nodes[name])))

    def remove_node(self, name: str) -> None:
        found = self.nodes.pop(name, None)
        if found is not None:
            self.node_events.append(("DELETED", found))
            for one in [key for key, value in self.pods.items() if self.place(value) == name]:
                self.remove_pod(one)

    def create(self, cpu: int, gpus: int = 0, *, gated: bool) -> str:
        self.made += 1
        name = f"p{self.made}"
        role = "accelerated-data-worker" if gpus else "data-worker"
        extra = {"job": f"j{self.made % 2}", "role": role} if gated else {}
        self.pods[name] = pod(name, str(cpu), gpus, gated=gated, **extra)
        self._told(name)
        return name

    def end(self, name: str) -> None:
        self.pods[name]["status"]["phase"] = "Succeeded"
        self._told(name)

    def remove_pod(self, name: str) -> None:
        found = self.pods.pop(name, None)
        if found is not None:
            self.pod_events.append(("DELETED", found))

    def _told(self, name: str) -> None:
        self.pod_events.append(("PUT", copy.deepcopy(self.pods[name])))

    # kube-scheduler

    @staticmethod
    def place(document: Json) -> str:
        return str(document["spec"].get("nodeName", ""))

    @staticmethod
    def asked(document: Json) -> tuple[int, int, int]:
        requests = document["spec"]["containers"][0]["resources"]["requests"]
        return (
            parse_milli_cpu(requests["cpu"]),
            parse_bytes(requests["memory"]),
            int(requests.get(GPU, 0)),
        )

    def free(self, name: str) -> tuple[int, int, int, int]:
        """CPU, memory, accelerators and places for pods that are really free."""
        given = self.nodes[name]["status"]["allocatable"]
        held = [
            self.asked(one)
            for one in self.pods.values()
            if self.place(one) == name and one["status"]["phase"] != "Succeeded"
        ]
        return (
            parse_milli_cpu(given["cpu"]) - sum(one[0] for one in held),
            parse_bytes(given["memory"]) - sum(one[1] for one in held),
            int(given.get(GPU, 0)) - sum(one[2] for one in held),
            int(given["pods"]) - len(held),
        )

    def fits(self, document: Json, name: str) -> bool:
        free = self.free(name)
        return not self.nodes[name]["spec"].get("unschedulable") and all(
            have >= want for have, want in zip(free, (*self.asked(document), 1), strict=True)
        )

    def schedule(self) -> None:
        """Bind what can be bound; say of the rest that it cannot."""
        for name, document in list(self.pods.items()):
            spec = document["spec"]
            if spec.get("schedulingGates") or self.place(document):
                continue
            if document["status"]["phase"] == "Succeeded":
                continue
            affinity = spec.get("affinity")
            candidates = sorted(self.nodes)
            if affinity is not None:
                required = affinity["nodeAffinity"][
                    "requiredDuringSchedulingIgnoredDuringExecution"
                ]
                [term] = required["nodeSelectorTerms"]
                candidates = [one for one in term["matchFields"][0]["values"] if one in self.nodes]
            where = next((one for one in candidates if self.fits(document, one)), None)
            if where is not None:
                spec["nodeName"] = where
                document["status"] = {"phase": "Running", "conditions": []}
                self._told(name)
            elif not document["status"]["conditions"]:
                document["status"]["conditions"] = [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "lastTransitionTime": SINCE,
                    }
                ]
                self._told(name)

    # The planner

    def deliver(self, nodes: int, pods: int) -> None:
        """The first so many events of each watch arrive."""
        for _ in range(min(nodes, len(self.node_events))):
            kind, document = self.node_events.popleft()
            if kind == "DELETED":
                self.planner.state.remove_node(document["metadata"]["name"])
            else:
                self.planner.state.put_node(document)
        for _ in range(min(pods, len(self.pod_events))):
            kind, document = self.pod_events.popleft()
            if kind == "DELETED":
                self.planner.state.remove_pod(document["metadata"]["uid"])
            else:
                self.planner.state.put_pod(document, self.now)

    def restart(self) -> None:
        """Another planner takes over, with complete lists."""
        self.planner = Planner()
        self.node_events.clear()
        self.pod_events.clear()
        self.relist(self.planner.state)

    def relist(self, state: ClusterState) -> None:
        state.replace_nodes(copy.deepcopy(list(self.nodes.values())))
        state.replace_pods(copy.deepcopy(list(self.pods.values())), self.now)

    def plan(self, *, applied: bool, answered: bool) -> list[Any]:
        """One pass, and what became of its actions."""
        plan = self.planner.place(self.now)
        columns = self.planner.state.snapshot.columns
        for action in plan.actions:
            if isinstance(action, Pin):
                row = columns.row(action.node)
                assert columns.free_milli_cpu[row] >= 0, "the planner over-commits"
                assert columns.free_memory_bytes[row] >= 0
                if applied:
                    self._pin(action)
                if answered and not applied:
                    self.planner.pinner.failed(action.view.uid)
            elif isinstance(action, DeletePod):
                if applied and action.view.name in self.pods:
                    self.remove_pod(action.view.name)
                    self.create(1, gated=True)  # the controller makes its successor
                if answered and not applied:
                    self.planner.pinner.not_deleted(action.view.uid)
        return list(plan.actions)

    def _pin(self, action: Pin) -> None:
        document = self.pods.get(action.view.name)
        if document is None or not document["spec"].get("schedulingGates"):
            return  # gone or lifted: the API server refuses
        document["spec"]["schedulingGates"] = []
        terms = pinned_terms(action.view.terms, action.node)
        document["spec"]["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
        document["metadata"]["annotations"] = {
            PINNED_NODE: action.node,
            PINNED_AT: str(self.now),
        }
        self._told(action.view.name)
