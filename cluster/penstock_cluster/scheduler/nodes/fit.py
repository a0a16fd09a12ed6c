"""May this pod run on that node, and if not, why: the filters of kube-scheduler.

Pure: the same pod and the same account give the same answer. The reasons are kube-scheduler's
own words, since people and programs read them in ``PodScheduled`` conditions and events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_cluster.requests import PODS, Amounts
from penstock_cluster.scheduler.nodes.inventory import NodeAccount, Occupant
from penstock_cluster.scheduler.nodes.selectors import (
    keeps_off_cordoned_node,
    matches_node_selection,
    untolerated_taint,
)

Json = Mapping[str, Any]

AFFINITY_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
CORDONED = "node(s) were unschedulable"
NAME_MISMATCH = "node(s) didn't match the requested node name"
NO_VICTIMS = "No preemption victims found for incoming pod"
PREEMPTION_UNHELPFUL = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not take a pod; several resources may be short at once."""

    reasons: tuple[str, ...]
    removable: bool
    """Whether removing other pods from the node could help."""


def may_use(pod_spec: Json, node: Json) -> Refusal | None:
    """The filters that other pods have no part in: name, cordon, selection, taints."""
    wanted = pod_spec.get("nodeName")
    if wanted and wanted != node["metadata"]["name"]:
        return Refusal((NAME_MISMATCH,), removable=False)
    if keeps_off_cordoned_node(pod_spec, node):
        return Refusal((CORDONED,), removable=False)
    taint = untolerated_taint(pod_spec, (node.get("spec") or {}).get("taints"))
    if taint is not None:
        shown = f"{{{taint['key']}: {taint.get('value') or ''}}}"
        return Refusal((f"node(s) had untolerated taint {shown}",), removable=False)
    if not matches_node_selection(pod_spec, node):
        return Refusal((AFFINITY_MISMATCH,), removable=False)
    return None


def shortages(
    requests: Mapping[str, int],
    account: NodeAccount,
    freed: Mapping[str, int] | None = None,
    reserved: Mapping[str, int] | None = None,
) -> list[str]:
    """The resources of which the node has too little, after ``freed`` and ``reserved``."""
    freed = freed or {}
    reserved = reserved or {}
    short = []
    for resource, amount in requests.items():
        free = account.free(resource) + freed.get(resource, 0) - reserved.get(resource, 0)
        if amount > free:
            short.append(resource)
    return short


def reserved_for_others(account: NodeAccount, uid: str, priority: int) -> Amounts:
    """What nominated pods that are at least as important as this one will take."""
    total: Amounts = {}
    for other in account.nominated.values():
        if other.uid != uid and other.priority >= priority:
            for resource, amount in other.requests.items():
                total[resource] = total.get(resource, 0) + amount
    return total


def refusal(pod: Json, occupant: Occupant, account: NodeAccount) -> Refusal | None:
    """None when the pod fits the node as it is now."""
    return may_use(pod["spec"], account.node) or room_refusal(occupant, account)


def room_refusal(occupant: Occupant, account: NodeAccount) -> Refusal | None:
    """None when the node has what the pod asks for."""
    reserved = (
        reserved_for_others(account, occupant.uid, occupant.priority) if account.nominated else None
    )
    short = shortages(occupant.requests, account, reserved=reserved)
    if not short:
        return None
    reasons = tuple(
        "Too many pods" if resource == PODS else f"Insufficient {resource}" for resource in short
    )
    # More than the whole node has: no removal of others would ever make room.
    removable = all(
        occupant.requests[resource] <= account.allocatable.get(resource, 0) for resource in short
    )
    return Refusal(reasons, removable)


def unschedulable_message(refusals: Sequence[Refusal], *, may_preempt: bool) -> str:
    """``0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods. preemption: ...``

    ``refusals`` holds one entry per node.
    """
    if not refusals:
        return "no nodes available to schedule pods"
    available = f"0/{len(refusals)} nodes are available"
    counts = Counter(reason for refusal in refusals for reason in refusal.reasons)
    parts = sorted(f"{count} {reason}" for reason, count in counts.items())
    message = f"{available}: {', '.join(parts)}."
    if not may_preempt:
        return f"{message} preemption: not eligible due to preemptionPolicy=Never."
    outcomes = Counter(
        NO_VICTIMS if refusal.removable else PREEMPTION_UNHELPFUL for refusal in refusals
    )
    tried = sorted(f"{count} {outcome}" for outcome, count in outcomes.items())
    return f"{message} preemption: {available}: {', '.join(tried)}."
