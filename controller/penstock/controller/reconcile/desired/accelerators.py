"""Which accelerator a pod template asks for, and the template with none of it or with one.

A data worker that is not declared is made of the training worker's template. What that one asks for
decides whether an accelerated data worker can be: the kinds that the scheduler knows first, else
the one extended resource that it asks for; where it asks for several, nobody can tell which of them
computes. Devices of claims (Dynamic Resource Allocation) are not divided: a claim for eight is none
for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base import quantity
from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.base.enums import Role
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.main_container import main_index

_PLAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_EXAMPLE: Final = f"such as resources.limits[{ACCELERATOR_KINDS[0]}]: 1"

Json = dict[str, Any]

NONE_DECLARED: Final = f"must ask for one kind of accelerator, {_EXAMPLE}"
"""The rule that a declared template breaks."""

NONE_DERIVED: Final = (
    "there is none to make it from, as spec.replicaSpecs.worker.template asks for no accelerator of"
    " one kind: declare spec.replicaSpecs.acceleratedDataWorker with a template that does,"
    f" {_EXAMPLE}"
)
"""The rule that a worker's template breaks."""


def accelerator_of(template: Mapping[str, Any]) -> str | None:
    """The resource by which a template asks for accelerators; None: it asks for none of one kind.

    Raises:
        ValueError: a quantity does not parse.
    """
    asked: set[str] = set()
    for container in template["spec"]["containers"]:
        resources = container.get("resources") or {}
        amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        asked |= {
            name
            for name, amount in amounts.items()
            if "/" in name and quantity.parse_bytes(amount) > 0
        }
    known = [kind for kind in ACCELERATOR_KINDS if kind in asked]
    found: list[str] = [*known] or sorted(asked)
    return found[0] if len(found) == 1 else None


def can_be_made(spec: ElasticJobSpec, role: Role) -> bool:
    """Whether there is a template with an accelerator for a role that needs one; others need none.

    Raises:
        ValueError: a quantity of the worker's template does not parse.
    """
    if role is not Role.ACCELERATED_DATA_WORKER or role in spec.replica_specs.by_role():
        return True
    return accelerator_of(spec.replica_specs.worker.template) is not None


def without_accelerators(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A template whose containers ask for nothing but cpu, memory and ephemeral storage."""
    pod = template["spec"]
    containers = [
        {**container, "resources": _plain(container.get("resources") or {})}
        for container in pod["containers"]
    ]
    kept = {key: value for key, value in pod.items() if key != "resourceClaims"}
    return {**template, "spec": {**kept, "containers": containers}}


def with_one_accelerator(template: Mapping[str, Any], accelerator: str) -> Mapping[str, Any]:
    """The same with one accelerator of that kind, in its main container."""
    bare = without_accelerators(template)
    containers = list(bare["spec"]["containers"])
    main = containers[main_index(containers)]
    resources: Json = {kind: dict(amounts) for kind, amounts in main["resources"].items()}
    resources["limits"] = {**resources.get("limits", {}), accelerator: "1"}
    if "requests" in resources:
        resources["requests"][accelerator] = "1"
    containers[main_index(containers)] = {**main, "resources": resources}
    return {**bare, "spec": {**bare["spec"], "containers": containers}}


def _plain(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {
        kind: {
            name: amount for name, amount in (resources.get(kind) or {}).items() if name in _PLAIN
        }
        for kind in ("requests", "limits")
        if resources.get(kind)
    }
