"""A pod as the planner sees it, read from its JSON form: the few fields that decisions rest on.

A pin is recorded twice: in the pod's affinity, for kube-scheduler, and in two annotations, for the
planner, so that a planner that was started anew knows which pods it has pinned, where and when.
The time is by the planner's clock; one from the future (another machine's clock) counts as now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.base.enums import DATA_ROLES, Role
from penstock.crds import labels
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.objects import NOTHING, Pod, read_pod, read_request
from penstock.scheduler.request import Request

Json = Mapping[str, Any]

PINNED_NODE: Final = f"{labels.PLACEMENT_GATE}-node"
"""Annotation: the node that the planner chose."""

PINNED_AT: Final = f"{labels.PLACEMENT_GATE}-time"
"""Annotation: when it did, in seconds since 1970."""

_NAME_FIELD: Final = "metadata.name"
_DATA_ROLES: Final = {role.in_names: role for role in DATA_ROLES}


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod; times in seconds since 1970.

    Attributes:
        pod: what the snapshot keeps of it.
        request: what it asks for, for a pod that waits for a node and for pods of our jobs; None
            where that is not needed or cannot be read (`problem` says why).
        gated: whether it carries the planner's gate; `held_back`: whether it carries any gate.
        terms: its required node-affinity terms as they are written; None where it has none. Kept
            for gated pods alone.
        role: its role label (`Role.in_names` or ``trainer``); empty for pods of others.
        pinned_to: the node that it was pinned to; empty where it was not.
        unschedulable_seconds: since when kube-scheduler finds no node for it; None where it does.
        nominated: the node on which kube-scheduler makes room for it by preemption.
    """

    pod: Pod
    namespace: str
    name: str
    request: Request | None = None
    problem: str = ""
    gated: bool = False
    held_back: bool = False
    terms: tuple[Json, ...] | None = None
    role: str = ""
    job_uid: str = ""
    job: str = ""
    rank: int = 0
    incarnation: int = 0
    created_seconds: float = 0.0
    deleting: bool = False
    ready: bool = False
    ready_seconds: float = 0.0
    """Since when it is (not) ready."""
    pinned_to: str = ""
    pinned_seconds: float = 0.0
    unschedulable_seconds: float | None = None
    nominated: str = ""
    priority: int = 0
    deletion_cost: int = 0

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod.uid

    @property
    def waits(self) -> bool:
        """Whether the pod is there to stay and has no node yet."""
        return self.pod.node is None and not self.pod.terminal and not self.deleting

    @property
    def data_role(self) -> Role | None:
        """The role of a data worker of one of our jobs, accelerated or not; None for other pods."""
        return _DATA_ROLES.get(self.role)

    @property
    def is_data_worker(self) -> bool:
        """Whether the pod is a data worker of one of our jobs, accelerated or not."""
        return self.role in _DATA_ROLES

    @property
    def live(self) -> bool:
        """Whether the pod is there to stay."""
        return not self.pod.terminal and not self.deleting


def read_view(document: Json, kinds: Iterable[str] = ACCELERATOR_KINDS) -> PodView:
    """A pod from its JSON form; what cannot be read is named in `problem`, never raised."""
    metadata, spec = document["metadata"], document["spec"]
    status = document.get("status") or {}
    tags = metadata.get("labels") or {}
    notes = metadata.get("annotations") or {}
    gates = [gate.get("name") for gate in spec.get("schedulingGates") or ()]
    gated = labels.PLACEMENT_GATE in gates
    problem, request = "", None
    role = str(tags.get(labels.ROLE, "")) if labels.JOB_UID in tags else ""
    try:
        pod = read_pod(document, kinds)
        if not pod.terminal and (pod.node is None or role):
            where = f"pod {metadata.get('namespace', 'default')}/{metadata.get('name', '')}"
            request = read_request(_without_pin(spec), kinds, where)
    except InvalidRequestError as error:
        problem = str(error)
        pod = Pod(metadata["uid"], spec.get("nodeName") or None, NOTHING)
    scheduled = _condition(status, "PodScheduled")
    ready = _condition(status, "Ready")
    since = None
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        since = read_time(scheduled.get("lastTransitionTime")) or 0.0
    return PodView(
        pod=pod,
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        request=request,
        problem=problem,
        gated=gated,
        held_back=bool(gates),
        terms=required_terms(spec) if gated else None,
        role=role,
        job_uid=str(tags.get(labels.JOB_UID, "")),
        job=str(tags.get(labels.JOB, "")),
        rank=_integer(tags.get(labels.RANK)),
        incarnation=_integer(tags.get(labels.INCARNATION)),
        created_seconds=read_time(metadata.get("creationTimestamp")) or 0.0,
        deleting=bool(metadata.get("deletionTimestamp")),
        ready=ready.get("status") == "True",
        ready_seconds=read_time(ready.get("lastTransitionTime")) or 0.0,
        pinned_to=str(notes.get(PINNED_NODE, "")),
        pinned_seconds=_seconds(notes.get(PINNED_AT)),
        unschedulable_seconds=since,
        nominated=status.get("nominatedNodeName") or "",
        priority=spec.get("priority") or 0,
        deletion_cost=_integer(notes.get(labels.POD_DELETION_COST)),
    )


def required_terms(spec: Json) -> tuple[Json, ...] | None:
    """The required node-affinity terms as they are written; None where there are none."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return None if required is None else tuple(required.get("nodeSelectorTerms") or ())


def pinned_terms(terms: Sequence[Json] | None, node: str) -> list[dict[str, Any]]:
    """The required terms of a pod that is to run on that node.

    The API server lets a gated pod's terms be narrowed, each for itself, and refuses one more; a
    term without any expression matches nothing and may not be given one. A pod without terms gets
    one.
    """
    pin = {"key": _NAME_FIELD, "operator": "In", "values": [node]}
    if terms is None:
        return [{"matchFields": [pin]}]
    return [
        {**term, "matchFields": [*(term.get("matchFields") or ()), pin]}
        if term.get("matchExpressions") or term.get("matchFields")
        else dict(term)
        for term in terms
    ]


def _without_pin(spec: Json) -> Json:
    """The spec as it was before a pin, so that a placed data worker can be placed elsewhere."""
    terms = required_terms(spec)
    if terms is None:
        return spec
    kept = []
    for term in terms:
        fields = [
            entry
            for entry in term.get("matchFields") or ()
            if not (entry.get("key") == _NAME_FIELD and entry.get("operator") == "In")
        ]
        kept.append({**term, "matchFields": fields})
    bare = all(not (term.get("matchExpressions") or term["matchFields"]) for term in kept)
    pinned = any(term.get("matchFields") for term in terms)
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": kept}
        }
    }
    return {**spec, "affinity": {} if bare and pinned else affinity}


def read_time(text: str | None) -> float | None:
    """An RFC 3339 time as seconds since 1970; None where there is none that can be read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _condition(status: Json, kind: str) -> Json:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Json = condition
            return found
    return {}


def _integer(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0


def _seconds(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return 0.0
