"""Nodes and pods as the snapshot keeps them, and how they are read from Kubernetes objects.

The one place where quantities are parsed and where it is decided what a pod holds of a node: the
larger of what it requests and what it was allocated (they differ while it is resized in place),
with init containers, sidecars and overhead counted as the kubelet counts them. Reading is strict
about what it needs and ignores the rest; a quantity that is none names the object and the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.base.quantity import parse_bytes, parse_milli_cpu
from penstock.crds.pod_shape import TemplateError, check_pod_spec
from penstock.scheduler.eligibility import NodeTraits
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.request import (
    Constraints,
    Expression,
    Request,
    Taint,
    Term,
    Toleration,
)

_TERMINAL_PHASES: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Amounts:
    """CPU, memory and accelerators by kind; never negative where it says what is asked for."""

    milli_cpu: int = 0
    memory_bytes: int = 0
    accelerators: tuple[tuple[str, int], ...] = ()

    def plus(self, other: Amounts) -> Amounts:
        """The sum of both."""
        kinds = dict(self.accelerators)
        for kind, count in other.accelerators:
            kinds[kind] = kinds.get(kind, 0) + count
        return Amounts(
            self.milli_cpu + other.milli_cpu,
            self.memory_bytes + other.memory_bytes,
            tuple(sorted(kinds.items())),
        )

    def larger(self, other: Amounts) -> Amounts:
        """The larger of both, resource by resource."""
        kinds = dict(self.accelerators)
        for kind, count in other.accelerators:
            kinds[kind] = max(kinds.get(kind, 0), count)
        return Amounts(
            max(self.milli_cpu, other.milli_cpu),
            max(self.memory_bytes, other.memory_bytes),
            tuple(sorted(kinds.items())),
        )


NOTHING: Final = Amounts()


@dataclass(frozen=True, slots=True)
class Node:
    """A node: what may be allocated on it, and who may use it."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    most_pods: int | None = None
    """How many pods the kubelet takes; None where the node does not say."""

    @property
    def traits(self) -> NodeTraits:
        """What constraints are held against."""
        return NodeTraits(self.name, self.labels, self.taints)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: what it holds, and where. `node` is None while it is not bound."""

    uid: str
    node: str | None
    held: Amounts
    terminal: bool = False

    @property
    def holds_resources(self) -> bool:
        """Whether the pod takes room on its node."""
        return self.node is not None and not self.terminal


def read_node(document: Mapping[str, Any], kinds: Iterable[str] = ACCELERATOR_KINDS) -> Node:
    """A node from its JSON form.

    Raises:
        InvalidRequestError: a quantity cannot be read.
    """
    name = document["metadata"]["name"]
    spec = document.get("spec") or {}
    allocatable = (document.get("status") or {}).get("allocatable") or {}
    taints = tuple(
        Taint(taint["key"], taint.get("value") or "", taint.get("effect") or "")
        for taint in spec.get("taints") or ()
    )
    try:
        most_pods = parse_bytes(allocatable["pods"]) if "pods" in allocatable else None
    except ValueError as error:
        where = f"node {name}: status.allocatable.pods"
        raise InvalidRequestError(where, allocatable["pods"], str(error)) from None
    return Node(
        name=name,
        allocatable=_amounts(allocatable, tuple(kinds), f"node {name}: status.allocatable"),
        labels=dict(document["metadata"].get("labels") or {}),
        taints=taints,
        cordoned=bool(spec.get("unschedulable")),
        most_pods=most_pods,
    )


def read_pod(document: Mapping[str, Any], kinds: Iterable[str] = ACCELERATOR_KINDS) -> Pod:
    """A pod from its JSON form.

    Raises:
        InvalidRequestError: a quantity cannot be read.
    """
    metadata, status = document["metadata"], document.get("status") or {}
    where = f"pod {metadata.get('namespace', 'default')}/{metadata.get('name', '')}"
    return Pod(
        uid=metadata["uid"],
        node=document["spec"].get("nodeName") or None,
        held=held_by(document["spec"], status, tuple(kinds), where),
        terminal=status.get("phase") in _TERMINAL_PHASES,
    )


def held_by(
    spec: Mapping[str, Any], status: Mapping[str, Any], kinds: tuple[str, ...], where: str
) -> Amounts:
    """What a pod holds of its node.

    Containers run together; init containers one after the other, each beside the sidecars that
    were started before it; so the pod holds the larger of the two.
    """
    allocated = {
        entry["name"]: entry.get("allocatedResources") or {}
        for entry in (
            *(status.get("containerStatuses") or ()),
            *(status.get("initContainerStatuses") or ()),
        )
    }

    def of(container: Mapping[str, Any]) -> Amounts:
        name = container.get("name", "")
        requests = (container.get("resources") or {}).get("requests") or {}
        limits = (container.get("resources") or {}).get("limits") or {}
        asked = _amounts({**limits, **requests}, kinds, f"{where}: resources of {name}")
        given = _amounts(allocated.get(name, {}), kinds, f"{where}: allocatedResources of {name}")
        return asked.larger(given)

    running, sidecars, starting = NOTHING, NOTHING, NOTHING
    for container in spec.get("containers") or ():
        running = running.plus(of(container))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars.plus(of(container))
            starting = starting.larger(sidecars)
        else:
            starting = starting.larger(sidecars.plus(of(container)))
    overhead = _amounts(spec.get("overhead") or {}, kinds, f"{where}: overhead")
    return running.plus(sidecars).larger(starting).plus(overhead)


def read_request(
    spec: Mapping[str, Any], kinds: Iterable[str] = ACCELERATOR_KINDS, where: str = "pod"
) -> Request:
    """What an unbound pod asks for, and where it may run.

    Raises:
        InvalidRequestError: a field is of the wrong type (a job's template is kept unread by the
            API server), a quantity cannot be read, or the pod asks for two accelerator kinds.
    """
    try:
        check_pod_spec(spec)
    except TemplateError as error:
        raise InvalidRequestError(f"{where}: {error.field}", error.value, error.rule) from None
    amounts = held_by(spec, {}, tuple(kinds), where)
    asked = [(kind, count) for kind, count in amounts.accelerators if count]
    if len(asked) > 1:
        rule = "a pod may ask for accelerators of one kind only"
        raise InvalidRequestError(f"{where}: accelerators", dict(asked), rule)
    return Request(
        milli_cpu=amounts.milli_cpu,
        memory_bytes=amounts.memory_bytes,
        accelerators=asked[0][1] if asked else 0,
        accelerator_kinds=(asked[0][0],) if asked else (),
        constraints=read_constraints(spec),
    )


def read_constraints(spec: Mapping[str, Any]) -> Constraints:
    """Selector, required node affinity and tolerations of a pod."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = None
    if affinity is not None:
        terms = tuple(
            Term(
                labels=_expressions(term.get("matchExpressions")),
                fields=_expressions(term.get("matchFields")),
            )
            for term in affinity.get("nodeSelectorTerms") or ()
        )
    return Constraints(
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=terms,
        tolerations=tuple(
            Toleration(
                key=entry.get("key") or "",
                operator=entry.get("operator") or "Equal",
                value=entry.get("value") or "",
                effect=entry.get("effect") or "",
            )
            for entry in spec.get("tolerations") or ()
        ),
    )


def _expressions(entries: Iterable[Mapping[str, Any]] | None) -> tuple[Expression, ...]:
    return tuple(
        Expression(entry["key"], entry["operator"], tuple(entry.get("values") or ()))
        for entry in entries or ()
    )


def _amounts(quantities: Mapping[str, str | int], kinds: tuple[str, ...], where: str) -> Amounts:
    """The resources that placement looks at; anything below zero counts as nothing."""

    def read(resource: str) -> int:
        parse = parse_milli_cpu if resource == "cpu" else parse_bytes
        try:
            return max(0, parse(quantities.get(resource, 0)))
        except ValueError as error:
            raise InvalidRequestError(
                f"{where}.{resource}", quantities[resource], str(error)
            ) from None

    counts = ((kind, read(kind)) for kind in kinds if kind in quantities)
    accelerators = tuple(sorted((kind, count) for kind, count in counts if count))
    return Amounts(read("cpu"), read("memory"), accelerators)
