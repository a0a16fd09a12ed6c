"""A plan as the targets of a Scale: integers become the quantities of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.base.enums import Role
from penstock.base.quantity import format_bytes, format_milli_cpu
from penstock.base.targets import RoleTarget
from penstock.brain.planning import Plan, RankPlan, RolePlan

Incarnations = Mapping[Role, Mapping[int, int]]
"""The newest incarnation of each rank; a rank that is absent has only ever had incarnation 0."""


def role_targets(plan: Plan, incarnations: Incarnations | None = None) -> dict[Role, RoleTarget]:
    """The targets that carry out `plan`, by role; a role about which it says nothing is absent.

    A rank to be replaced is given the incarnation after its newest in `incarnations`.
    """
    known = incarnations or {}
    targets = {role: _role(of, known.get(role, {})) for role, of in plan.roles.items()}
    return {role: target for role, target in targets.items() if target is not None}


def _role(plan: RolePlan, incarnations: Mapping[int, int]) -> RoleTarget | None:
    ranks = {
        rank: own
        for rank, of in sorted(plan.ranks.items())
        if (own := _rank(of, incarnations.get(rank, 0)))
    }
    fields: dict[str, object] = {
        "replicas": plan.replicas,
        "spare_replicas": plan.spare_replicas,
        "resources": _quantities(plan.milli_cpu, plan.memory_bytes) or None,
        "ranks": ranks or None,
    }
    said = {name: value for name, value in fields.items() if value is not None}
    return RoleTarget.model_validate(said) if said else None


def _rank(plan: RankPlan, incarnation: int) -> dict[str, object]:
    fields: dict[str, object] = dict(_quantities(plan.milli_cpu, plan.memory_bytes))
    if plan.replace:
        fields["min_incarnation"] = incarnation + 1
    if plan.avoid_nodes:
        fields["avoid_nodes"] = list(plan.avoid_nodes)
    return fields


def _quantities(milli_cpu: int | None, memory_bytes: int | None) -> dict[str, str]:
    fields = {}
    if milli_cpu is not None:
        fields["cpu"] = format_milli_cpu(milli_cpu)
    if memory_bytes is not None:
        fields["memory"] = format_bytes(memory_bytes)
    return fields
