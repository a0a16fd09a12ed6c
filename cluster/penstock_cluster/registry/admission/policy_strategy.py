"""Admission policies and their bindings, as objects that are written and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock_cluster.registry.admission import cel
from penstock_cluster.registry.model.documents import compact
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.objects.resource import Strategy

_DECLARED = frozenset(
    ["authorizer", "namespaceObject", "object", "oldObject", "params", "request", "variables"]
)


class AdmissionPolicyStrategy(Strategy):
    """Admission policies and their bindings: the defaults clients see in every reply."""

    counts_generation = True
    has_status = True

    def default(self, document: Json) -> None:
        spec = document.setdefault("spec", {})
        if document["kind"].endswith("Policy"):
            spec.setdefault("failurePolicy", "Fail")
        resources: Any = spec.get("matchConstraints") or spec.get("matchResources")
        if resources is not None:
            resources.setdefault("matchPolicy", "Equivalent")
            resources.setdefault("namespaceSelector", {})
            resources.setdefault("objectSelector", {})
            for rule in resources.get("resourceRules") or ():
                rule.setdefault("scope", "*")

    def check(self, document: Json, faults: Faults) -> None:
        for path, expression in _expressions(document.get("spec") or {}):
            try:
                cel.compiled(expression).require(_DECLARED)
            except cel.CelError as error:
                faults.invalid(path, compact(expression), f"compilation failed: {error}")


def _expressions(spec: Json) -> Iterator[tuple[str, str]]:
    fields = {
        "matchConditions": ("expression",),
        "variables": ("expression",),
        "validations": ("expression", "messageExpression"),
        "auditAnnotations": ("valueExpression",),
    }
    for part, names in fields.items():
        for index, item in enumerate(spec.get(part) or ()):
            for name in names:
                if item.get(name):
                    yield f"spec.{part}[{index}].{name}", item[name].strip()
