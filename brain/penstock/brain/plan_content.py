"""The part of a plan that never changes, as it lies in the store: targets, evidence, prediction.

Targets are kept in the form of a Scale, the one form that an algorithm's plan and a person's
override share; `applied` turns them back into what the algorithms see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from penstock.base import quantity
from penstock.base.enums import Role, Stage
from penstock.base.targets import RankTarget, RoleTarget
from penstock.brain.planning import AppliedPlan, DataWorkerDemand, Plan, RankPlan, RolePlan
from penstock.brain.targets import Incarnations, role_targets


class PlanContent(BaseModel):
    """What a plan says and what it is based on."""

    model_config = ConfigDict(frozen=True)

    roles: Mapping[Role, RoleTarget] = Field(default_factory=dict)
    shard_weights: Mapping[int, float] = Field(default_factory=dict)
    data_workers: Mapping[str, Any] | None = None
    prediction: Mapping[str, float] | None = None
    evidence: Mapping[str, Any] = Field(default_factory=dict)

    def dump(self) -> str:
        """As JSON, for the store."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


def of_plan(plan: Plan, incarnations: Incarnations | None = None) -> PlanContent:
    """The content of an algorithm's plan."""
    demand, prediction, evidence = plan.data_workers, plan.prediction, plan.evidence
    return PlanContent(
        roles=role_targets(plan, incarnations),
        shard_weights=dict(plan.shard_weights),
        data_workers=demand
        and {
            "replicas": demand.replicas,
            "milli_cpu": demand.milli_cpu,
            "memory_bytes": demand.memory_bytes,
        },
        prediction=prediction
        and {
            "steps_per_second": prediction.steps_per_second,
            "error_steps_per_second": prediction.error_steps_per_second,
        },
        evidence={
            "samples": evidence.samples,
            "first_sample_seconds": evidence.first_sample_seconds,
            "last_sample_seconds": evidence.last_sample_seconds,
            "past_jobs": list(evidence.past_jobs),
            "figures": dict(evidence.figures),
        },
    )


def applied(
    content: PlanContent,
    *,
    created_seconds: float,
    settled_seconds: float | None,
    stage: Stage,
    reason: str,
) -> AppliedPlan:
    """A stored plan as the algorithms see it; one that changes no pod has settled at once."""
    demand = content.data_workers
    return AppliedPlan(
        applied_seconds=created_seconds,
        settled_seconds=settled_seconds if content.roles else created_seconds,
        shard_weights=dict(content.shard_weights),
        data_workers=None if demand is None else DataWorkerDemand(**demand),
        roles={role: role_plan(target) for role, target in content.roles.items()},
        stage=stage,
        reason=reason,
    )


def role_plan(target: RoleTarget) -> RolePlan:
    """The targets of one role with integers for quantities."""
    resources = target.resources
    return RolePlan(
        replicas=target.replicas,
        spare_replicas=target.spare_replicas,
        milli_cpu=_milli_cpu(resources.cpu if resources else None),
        memory_bytes=_bytes(resources.memory if resources else None),
        ranks={rank: _rank_plan(own) for rank, own in (target.ranks or {}).items()},
    )


def _rank_plan(target: RankTarget) -> RankPlan:
    return RankPlan(
        milli_cpu=_milli_cpu(target.cpu),
        memory_bytes=_bytes(target.memory),
        replace=target.min_incarnation is not None,
        avoid_nodes=tuple(target.avoid_nodes or ()),
    )


def _milli_cpu(text: str | None) -> int | None:
    return None if text is None else quantity.parse_milli_cpu(text)


def _bytes(text: str | None) -> int | None:
    return None if text is None else quantity.parse_bytes(text)
