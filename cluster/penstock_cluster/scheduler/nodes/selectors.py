"""Node selectors, required node affinity, taints and tolerations: may this pod use that node?

All functions are pure and read the objects as the API server stores them. The rules are those of
the Kubernetes API reference (PodSpec, NodeSelectorTerm, Toleration): the terms of a required
affinity are alternatives, the requirements inside a term all hold, an empty term matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})


def matches_node_selection(pod_spec: Json, node: Json) -> bool:
    """Whether ``nodeSelector`` and the required node affinity both accept the node."""
    labels = node["metadata"].get("labels") or {}
    for key, value in (pod_spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches_term(term, node) for term in required.get("nodeSelectorTerms") or ())


def named_nodes(pod_spec: Json) -> frozenset[str] | None:
    """The nodes that the required affinity names, where each of its terms names some; else None.

    kube-scheduler's NodeAffinity does the same before it filters: a pod that is pinned to a node
    costs one look, not one at every node.
    """
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (required or {}).get("nodeSelectorTerms") or ()
    named: set[str] = set()
    for term in terms:
        values = [
            frozenset(field.get("values") or ())
            for field in term.get("matchFields") or ()
            if field["key"] == "metadata.name" and field["operator"] == "In"
        ]
        if not values:
            return None
        named |= frozenset.intersection(*values)
    return frozenset(named) if terms else None


def _matches_term(term: Json, node: Json) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = node["metadata"].get("labels") or {}
    names = {"metadata.name": node["metadata"]["name"]}
    return all(_matches_requirement(requirement, labels) for requirement in expressions) and all(
        _matches_requirement(requirement, names) for requirement in fields
    )


def _matches_requirement(requirement: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement["key"])
    wanted: Sequence[str] = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                number, bound = int(value or ""), int(wanted[0])
            except (ValueError, IndexError):
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (
        taint.get("value") or ""
    )


def untolerated_taint(pod_spec: Json, taints: Iterable[Json] | None) -> Json | None:
    """The first taint that keeps the pod off the node; PreferNoSchedule never does."""
    tolerations = pod_spec.get("tolerations") or ()
    for taint in taints or ():
        if taint.get("effect") in _KEEPS_OUT and not any(
            tolerates(toleration, taint) for toleration in tolerations
        ):
            return taint
    return None


def keeps_off_cordoned_node(pod_spec: Json, node: Json) -> bool:
    """Whether the node is cordoned and the pod does not tolerate that."""
    if not (node.get("spec") or {}).get("unschedulable"):
        return False
    cordon = {"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
    return untolerated_taint(pod_spec, [cordon]) is not None
