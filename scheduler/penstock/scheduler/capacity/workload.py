"""The nodes of a cluster and the pods on them and before them, as a what-if needs them.

Pods that are alike (same job, role, node, request and priority) are one group. What pods of no job
hold of a node is known as a sum alone: it stays where it is, and goes with its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.pod_view import PodView
from penstock.scheduler.objects import NOTHING, Amounts, Node
from penstock.scheduler.request import Constraints, Request

HOSTNAME: Final = "kubernetes.io/hostname"
"""The one label that no two nodes have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedNode:
    """A node, and what pods of no job hold of it."""

    node: Node
    others: Amounts = NOTHING
    other_pods: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """Pods that are alike.

    Attributes:
        job: its uid; empty: pods of no job, which wait.
        role: as in names; empty for pods of no job.
        node: where they are; empty: they wait for a node.
        created_seconds: when the first of them was made.
    """

    job: str
    role: str
    node: str
    request: Request
    count: int = 1
    priority: int = 0
    created_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job with pods in the cluster.

    Attributes:
        together: workers and parameter servers that start together or not at all; 0: no gang.
        strategy, signature: by which finished jobs like it are found.
    """

    uid: str
    namespace: str
    name: str
    together: int = 0
    strategy: str = ""
    signature: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A cluster at one moment."""

    nodes: tuple[HostedNode, ...]
    pods: tuple[PodGroup, ...] = ()
    jobs: Mapping[str, WaitingJob] = field(default_factory=dict)


def workload_of(state: ClusterState) -> Workload:
    """The cluster as the scheduler knows it; of labels only those that a pod here asks for."""
    groups: dict[PodGroup, tuple[int, float]] = {}
    ours: dict[str, Amounts] = {}
    own_pods: Counter[str] = Counter()
    for view in state.pods.values():
        if view.request is None or not (view.live or view.waits):
            continue
        key = _group(view)
        count, since = groups.get(key, (0, view.created_seconds))
        groups[key] = (count + 1, min(since, view.created_seconds))
        if view.pod.node is not None:
            ours[view.pod.node] = ours.get(view.pod.node, NOTHING).plus(view.pod.held)
            own_pods[view.pod.node] += 1
    pods = tuple(
        replace(key, count=count, created_seconds=since) for key, (count, since) in groups.items()
    )
    asked = _labels_asked_for(one.request.constraints for one in pods)
    nodes = []
    for name in sorted(state.snapshot.nodes):
        node = state.snapshot.nodes[name]
        held, count = state.snapshot.held(name)
        nodes.append(
            HostedNode(
                node=replace(node, labels={k: v for k, v in node.labels.items() if k in asked}),
                others=_less(held, ours.get(name, NOTHING)),
                other_pods=max(0, count - own_pods[name]),
            )
        )
    jobs = {one.job for one in pods}
    return Workload(
        nodes=tuple(nodes),
        pods=pods,
        jobs={
            uid: WaitingJob(
                uid=uid,
                namespace=job.namespace,
                name=job.name,
                together=job.together,
                strategy=job.strategy,
                signature=dict(job.signature),
            )
            for uid, job in state.jobs.items()
            if uid in jobs
        },
    )


def _group(view: PodView) -> PodGroup:
    assert view.request is not None
    return PodGroup(
        job=view.job_uid if view.role else "",
        role=view.role,
        node=view.pod.node or "",
        request=view.request,
        priority=view.priority,
    )


def _labels_asked_for(constraints: Iterable[Constraints]) -> frozenset[str]:
    found: set[str] = set()
    for one in set(constraints):
        found.update(key for key, _ in one.node_selector)
        for term in one.affinity or ():
            found.update(expression.key for expression in term.labels)
    return frozenset(found)


def _less(held: Amounts, ours: Amounts) -> Amounts:
    kinds = dict(ours.accelerators)
    left = ((kind, count - kinds.get(kind, 0)) for kind, count in held.accelerators)
    return Amounts(
        max(0, held.milli_cpu - ours.milli_cpu),
        max(0, held.memory_bytes - ours.memory_bytes),
        tuple((kind, count) for kind, count in left if count > 0),
    )
