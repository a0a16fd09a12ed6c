"""The targets of a Scale as independent fields: ``(role, rank or None, name) -> value``.

Precedence between Scales is decided for each field by itself, so a Scale is a map from fields to
values, and what several Scales say together is one map laid over another. Values are what decisions
count with: milli-cores, bytes, integers, tuples of node names.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.base import quantity
from penstock.base.enums import Role
from penstock.crds.scale import ScaleSpec

REPLICAS: Final = "replicas"
SPARE_REPLICAS: Final = "spareReplicas"
CPU: Final = "cpu"
MEMORY: Final = "memory"
MIN_INCARNATION: Final = "minIncarnation"
AVOID_NODES: Final = "avoidNodes"


class FieldKey(NamedTuple):
    """One target that a Scale can set; ``rank`` is None for a role's own targets."""

    role: Role
    rank: int | None
    name: str


def flatten(spec: ScaleSpec) -> dict[FieldKey, Any]:
    """The targets of a Scale as fields; what it does not name is absent.

    Raises:
        ValueError: a quantity does not parse; the message names the field, the value and the rule.
    """
    fields: dict[FieldKey, Any] = {}
    for role, target in spec.roles.items():
        if target.replicas is not None:
            fields[FieldKey(role, None, REPLICAS)] = target.replicas
        if target.spare_replicas is not None:
            fields[FieldKey(role, None, SPARE_REPLICAS)] = target.spare_replicas
        if target.resources is not None:
            _add_resources(fields, role, None, target.resources.cpu, target.resources.memory)
        for rank, exception in (target.ranks or {}).items():
            _add_resources(fields, role, rank, exception.cpu, exception.memory)
            if exception.min_incarnation is not None:
                fields[FieldKey(role, rank, MIN_INCARNATION)] = exception.min_incarnation
            if exception.avoid_nodes is not None:
                fields[FieldKey(role, rank, AVOID_NODES)] = tuple(exception.avoid_nodes)
    return fields


def _add_resources(
    fields: dict[FieldKey, Any], role: Role, rank: int | None, cpu: str | None, memory: str | None
) -> None:
    if cpu is not None:
        fields[FieldKey(role, rank, CPU)] = quantity.parse_milli_cpu(cpu)
    if memory is not None:
        fields[FieldKey(role, rank, MEMORY)] = quantity.parse_bytes(memory)
