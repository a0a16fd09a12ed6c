"""Condition Planned: whether the job's replicas may start, and what they wait for.

The first answer stays: a plan that was there, or a Brain that did not answer in time, is not asked
about again, so that no later outage stops or restarts a training.
"""

from __future__ import annotations

from datetime import datetime

from penstock.base.enums import TRAINER_ROLE, Optimize, Role, Source
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.observed import Scale
from penstock.controller.reconcile.pass_context import PassContext
from penstock.crds.conditions import JobCondition, JobReason, ScaleCondition
from penstock.crds.elasticjob import ElasticJobSpec


def set_planned(context: PassContext, spec: ElasticJobSpec, scales: list[Scale]) -> bool:
    """Set condition Planned; returns whether the replicas may start."""
    kind, conditions = JobCondition.PLANNED, context.conditions
    before = context.job.status.conditions.get(kind)
    if spec.optimize is Optimize.MANUAL:
        text = "optimize is Manual: the job is what its spec says"
        conditions.set(kind, True, JobReason.NO_PLAN_WANTED, text)
        return True
    if before is not None and before.status == "True":
        return True
    plan = max((one for one in scales if _is_plan(one)), key=lambda one: one.order, default=None)
    if plan is not None:
        text = f"the first plan was Scale {plan.name} by {plan.source.value}"
        conditions.set(kind, True, JobReason.PLAN_ADMITTED, text)
        return True
    if before is not None and before.status == "False":
        return True
    due = _plan_due(context)
    if due <= context.now:
        text = "no plan came in time; the job starts with what its spec says"
        conditions.set(kind, False, JobReason.BRAIN_UNAVAILABLE, text)
        return True
    if not spec.suspend:
        context.alarm.at(due)
    text = "waits for the first plan"
    conditions.set(kind, None, JobReason.WAITING_FOR_PLAN, text)
    return False


def _plan_due(context: PassContext) -> datetime:
    """When the job starts even without a plan."""
    due = (context.job.status.start_time or context.now) + timing.PLAN_AFTER_ACCEPTANCE
    for pod in context.observed.pods:
        if pod.role == TRAINER_ROLE and pod.live and pod.ready and pod.ready_since:
            due = min(due, pod.ready_since + timing.PLAN_AFTER_TRAINER_READY)
    return due


def _is_plan(scale: Scale) -> bool:
    """Whether a Scale is a plan that a job may start with: not one of the controller's own."""
    return (
        scale.source is not Source.CONTROLLER
        and not scale.dry_run
        and scale.names_role(Role.WORKER)
        and scale.is_true(ScaleCondition.ADMITTED)
        and not scale.is_true(ScaleCondition.FAILED)
    )
