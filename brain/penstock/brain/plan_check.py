"""Whether a plan may be put in force: the one gate between an algorithm and a job.

An algorithm may come from elsewhere and answer anything. `check` lets through only what the job's
spec and limits allow, with every role taken together as it would be after the plan.
"""

from __future__ import annotations

from penstock.base.enums import Role, Strategy
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    Plan,
    RolePlan,
)
from penstock.brain.sizes import in_force


class PlanRefusedError(Exception):
    """A plan that may not be put in force; the text names the field, the value and the rule."""

    def __init__(self, field: str, rule: str, value: int | str | None = None) -> None:
        super().__init__(f"{field}: {rule}" if value is None else f"{field} = {value}: {rule}")
        self.field = field
        self.rule = rule
        self.value = value


def check(plan: Plan, job: JobDescription, limits: Limits, history: History) -> None:
    """Raise `PlanRefusedError` unless the job may become what `plan` says."""
    applied = AppliedPlan(applied_seconds=history.now_seconds, roles=plan.roles, stage=plan.stage)
    after = in_force(History(now_seconds=history.now_seconds, plans=(*history.plans, applied)))
    for role in plan.roles:
        _check_role(role, after[role], job, limits)
    _check_total("cpu (milli-cores)", _total(after, job, "milli_cpu"), limits.milli_cpu)
    _check_total("memory (bytes)", _total(after, job, "memory_bytes"), limits.memory_bytes)


def _check_role(role: Role, plan: RolePlan, job: JobDescription, limits: Limits) -> None:
    if role is Role.PS and job.strategy is not Strategy.PARAMETER_SERVER:
        raise PlanRefusedError(
            f"roles.{role}", f"a job of strategy {job.strategy} has no such role"
        )
    spec = job.role(role)
    if plan.replicas is not None and spec.clamp(plan.replicas) != plan.replicas:
        rule = (
            f"the spec fixes it at {spec.fixed}"
            if spec.fixed is not None
            else f"the spec allows {spec.minimum} to {spec.maximum or 'any number'}"
            + (f" in multiples of {spec.unit}" if spec.unit > 1 else "")
        )
        raise PlanRefusedError(f"roles.{role}.replicas", rule, plan.replicas)
    if (plan.spare_replicas or 0) > spec.spare:
        raise PlanRefusedError(
            f"roles.{role}.spareReplicas", f"the spec allows {spec.spare}", plan.spare_replicas
        )
    sizes = [("resources", plan.milli_cpu, plan.memory_bytes)] + [
        (f"ranks.{rank}", of.milli_cpu, of.memory_bytes) for rank, of in plan.ranks.items()
    ]
    for where, milli_cpu, memory in sizes:
        if milli_cpu is not None and milli_cpu > limits.pod_milli_cpu:
            raise PlanRefusedError(
                f"roles.{role}.{where}.cpu",
                f"a pod may have {limits.pod_milli_cpu}m",
                f"{milli_cpu}m",
            )
        most = limits.pod_memory_bytes
        if memory is not None and most is not None and memory > most:
            raise PlanRefusedError(
                f"roles.{role}.{where}.memory", f"a pod may have {most}", f"{memory} bytes"
            )


def _total(after: dict[Role, RolePlan], job: JobDescription, field: str) -> int:
    """What all replicas within the quota would have; spare workers come on top of it."""
    total = 0
    for role, plan in after.items():
        spec = job.role(role)
        count = spec.clamp(spec.minimum if plan.replicas is None else plan.replicas)
        each = getattr(plan, field) or getattr(spec, field) or 0
        own = [getattr(of, field) or each for rank, of in plan.ranks.items() if rank < count]
        total += sum(own) + (count - len(own)) * each
    return total


def _check_total(name: str, total: int, most: int | None) -> None:
    if most is not None and total > most:
        raise PlanRefusedError(f"{name} of all roles", f"the job's limit is {most}", total)
