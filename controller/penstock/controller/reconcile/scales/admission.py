"""Admission: whether a Scale may take part in its job's target; decided once, recorded, kept.

Scales are decided in the order in which the API server took them, and each gets the next number
with its decision: the order in which they count from then on (`penstock.crds.scale_order`). A
refused Scale changes nothing and is Failed with the reason. What is merely overridden, by a pin or
by a count that the spec fixes, is admitted: it stays underneath and counts again when what
overrides it goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from penstock.base.enums import Policy, Role
from penstock.controller.reconcile.desired import quota
from penstock.controller.reconcile.desired.accelerators import NONE_DERIVED, can_be_made
from penstock.controller.reconcile.desired.targets import (
    CONSENT,
    NOTHING_HELD,
    SPEC,
    Held,
    bounds,
    clamp,
    compute_target,
    is_spec_edit,
    most_spares,
    needs_consent,
    roles_of,
)
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Condition, Job, Scale
from penstock.controller.reconcile.model.target_fields import REPLICAS, SPARE_REPLICAS
from penstock.crds.conditions import ScaleCondition, ScaleReason
from penstock.crds.elasticjob import ElasticJobSpec

GENERATION: Final = 1  # a Scale is immutable, so it has one generation


def with_conditions(scale: Scale, conditions: Mapping[str, Condition]) -> Scale:
    """The same Scale with other conditions."""
    return dataclasses.replace(scale, conditions=conditions)


def refuse(scale: Scale, reason: ScaleReason, message: str, now: datetime) -> Scale:
    """The Scale, refused for good."""
    conditions = Conditions(scale.conditions, GENERATION, now)
    conditions.set(ScaleCondition.ADMITTED, False, reason, message)
    conditions.set(ScaleCondition.APPLIED, False, reason, message)
    conditions.set(ScaleCondition.FAILED, True, reason, message)
    return with_conditions(scale, conditions.current())


def fail(scale: Scale, reason: ScaleReason, message: str, now: datetime) -> Scale:
    """An admitted Scale that can no longer be carried out."""
    conditions = Conditions(scale.conditions, GENERATION, now)
    conditions.set(ScaleCondition.APPLIED, False, reason, message)
    conditions.set(ScaleCondition.FAILED, True, reason, message)
    return with_conditions(scale, conditions.current())


def admit(
    job: Job,
    spec: ElasticJobSpec,
    scales: Iterable[Scale],
    held: Held,
    now: datetime,
) -> list[Scale]:
    """Decide every Scale that is not decided yet.

    Args:
        job: the job.
        spec: its spec.
        scales: its Scales in any order.
        held: the counts in force of the roles whose changes need consent.
        now: the present time.

    Returns:
        All Scales in their order, the newly decided ones with their new conditions and numbers.
    """
    working = sorted(scales, key=lambda one: one.order)
    highest = max((one.number or 0 for one in working), default=0)
    for index, scale in enumerate(working):
        if not scale.is_decided and not scale.deleting:
            highest += 1
            numbered = dataclasses.replace(
                scale, raw_status={**scale.raw_status, "number": highest}
            )
            working[index] = _decide(job, spec, numbered, working, held, now)
    return working


def _decide(
    job: Job,
    spec: ElasticJobSpec,
    scale: Scale,
    others: list[Scale],
    held: Held,
    now: datetime,
) -> Scale:
    if scale.error:
        return refuse(scale, ScaleReason.INVALID, scale.error, now)
    if scale.job_uid != job.uid:
        text = f"spec.jobRef.uid: {scale.job_uid!r}: the job {job.name} has uid {job.uid}"
        return refuse(scale, ScaleReason.JOB_NOT_FOUND, text, now)
    if scale.job_generation is not None and scale.job_generation != job.generation:
        text = (
            f"spec.jobGeneration: {scale.job_generation}: the job has moved on to generation"
            f" {job.generation}"
        )
        return refuse(scale, ScaleReason.STALE_JOB, text, now)
    foreign = [role for role in Role if scale.names_role(role) and role not in roles_of(spec)]
    if foreign:
        text = f"spec.roles.{foreign[0]}: the job has no such role"
        return refuse(scale, ScaleReason.INVALID, text, now)
    unmade = [one for one in Role if scale.names_role(one) and not can_be_made(spec, one)]
    if unmade:
        return refuse(scale, ScaleReason.INVALID, f"spec.roles.{unmade[0]}: {NONE_DERIVED}", now)
    admitted = _admitted(spec, scale, held, now)
    over = _over_quota(spec, admitted, others, held)
    if over:
        return refuse(scale, ScaleReason.OVER_QUOTA, over, now)
    return admitted


def _admitted(spec: ElasticJobSpec, scale: Scale, held: Held, now: datetime) -> Scale:
    conditions = Conditions(scale.conditions, GENERATION, now)
    reason, message = _clamped(spec, scale)
    if scale.dry_run:
        reason = ScaleReason.DRY_RUN
    conditions.set(ScaleCondition.ADMITTED, True, reason, message)
    if not needs_consent(scale) or not any(scale.names_role(role) for role in held.counts):
        conditions.set(ScaleCondition.PREPARED, True, ScaleReason.NOT_REQUIRED)
    conditions.set(ScaleCondition.FAILED, False, ScaleReason.IN_EFFECT)
    return with_conditions(scale, conditions.current())


def _clamped(spec: ElasticJobSpec, scale: Scale) -> tuple[ScaleReason, str]:
    told: list[str] = []
    for key, value in scale.fields.items():
        if key.rank is None and key.name == REPLICAS:
            least, greatest = bounds(spec, key.role)
            kept = clamp(spec, key.role, value)
            if kept != value:
                unit = spec.replica_specs.worker.unit if key.role is Role.WORKER else 1
                units = f" in multiples of {unit}" if unit > 1 else ""
                told.append(
                    f"spec.roles.{key.role}.replicas: {value}: the job has from {least} to"
                    f" {greatest}{units}, so {kept} counts"
                )
        elif key.rank is None and key.name == SPARE_REPLICAS:
            most = most_spares(spec, key.role)
            if value > most:
                told.append(
                    f"spec.roles.{key.role}.spareReplicas: {value}: the job's spec allows at most"
                    f" {most}, so {most} counts"
                )
    return (ScaleReason.OUT_OF_RANGE, "; ".join(told)) if told else (ScaleReason.ADMITTED, "")


def _over_quota(spec: ElasticJobSpec, scale: Scale, others: list[Scale], held: Held) -> str:
    """Why a Scale would take the job beyond its limits, or "".

    Tried are the target as it would be now, once the spec's counts that wait for consent are in
    force, and with nothing pinned or fixed, since an overridden Scale comes into effect later
    without being asked again. A Scale that only leaves an excess as it is, or lessens it, is not
    refused for it.
    """
    rest = [one for one in others if one.name != scale.name]
    ready = Conditions(scale.conditions, GENERATION, scale.created)
    ready.set(ScaleCondition.PREPARED, True, ScaleReason.NOT_REQUIRED)
    candidate = dataclasses.replace(scale, dry_run=False, conditions=ready.current())
    free = _unfixed(spec)
    plain = [one for one in rest if one.policy is Policy.APPLY]
    variants = [(spec, rest, held), (spec, rest, NOTHING_HELD), (free, plain, NOTHING_HELD)]
    for variant, company, counts in variants if held else variants[1:]:
        after = quota.excess(variant, compute_target(variant, [*company, candidate], counts))
        if after:
            before = quota.excess(variant, compute_target(variant, company, counts))
            worse = {
                name: amounts
                for name, amounts in after.items()
                if name not in before or amounts[0] > before[name][0]
            }
            if worse:
                return quota.describe(worse)
    return ""


def _unfixed(spec: ElasticJobSpec) -> ElasticJobSpec:
    """The spec with no count fixed."""
    roles = spec.replica_specs
    freed = {
        role: declared.model_copy(update={"replicas": 0})
        for role, declared in roles.by_role().items()
    }
    return spec.model_copy(update={"replica_specs": roles.with_roles(freed)})


def prepare(
    spec: ElasticJobSpec, scales: list[Scale], held: Held, now: datetime
) -> tuple[list[Scale], datetime | None]:
    """Ask for the trainer's consent where it is needed, and give up on what took too long.

    Of the admitted Scales that name a role in `CONSENT` and are not prepared, the ones that would
    decide something get ``Prepared=Unknown``, which asks the trainer and starts the clock. The
    trainer answers with True, or with False to refuse.

    Returns:
        The Scales, and when the first of the running clocks ends.
    """
    waiting = [
        scale
        for scale in scales
        if needs_consent(scale)
        and scale.is_true(ScaleCondition.ADMITTED)
        and not scale.is_true(ScaleCondition.FAILED)
        and not scale.is_true(ScaleCondition.PREPARED)
        and not scale.dry_run
        and not scale.deleting
    ]
    if not waiting:
        return scales, None
    names = {scale.name for scale in waiting}
    if not held:  # no such pods: there is nothing to prepare
        return [_prepared(one, now) if one.name in names else one for one in scales], None
    assumed = [_prepared(one, now) if one.name in names else one for one in scales]
    origins = compute_target(spec, assumed, held).origins
    deciding = {
        origin
        for key, origin in origins.items()
        if key.role in CONSENT and origin in names and origin != SPEC
    }
    deciding |= {
        one.name for one in waiting if is_spec_edit(one) and one.job_generation == held.generation
    }
    alarm: datetime | None = None
    result: list[Scale] = []
    for scale in scales:
        if scale.name not in names:
            result.append(scale)
            continue
        asked, ends = _ask(scale, scale.name in deciding, now)
        alarm = min((one for one in (alarm, ends) if one), default=None)
        result.append(asked)
    return result, alarm


def _prepared(scale: Scale, now: datetime) -> Scale:
    conditions = Conditions(scale.conditions, GENERATION, now)
    conditions.set(ScaleCondition.PREPARED, True, ScaleReason.NOT_REQUIRED)
    return with_conditions(scale, conditions.current())


def _ask(scale: Scale, deciding: bool, now: datetime) -> tuple[Scale, datetime | None]:
    answer = scale.conditions.get(ScaleCondition.PREPARED)
    conditions = Conditions(scale.conditions, GENERATION, now)
    if not deciding:
        return scale, None
    if answer is None:
        text = "the trainer is asked to make the training ready for this change"
        conditions.set(ScaleCondition.PREPARED, None, ScaleReason.AWAITING_TRAINER, text)
        return with_conditions(scale, conditions.current()), now + timing.PREPARATION
    if answer.status == "False":
        text = f"the trainer refused: {answer.message or answer.reason}"
        return fail(scale, ScaleReason.NOT_PREPARED, text, now), None
    ends = answer.since + timing.PREPARATION
    if now < ends:
        return scale, ends
    waited = int(timing.PREPARATION.total_seconds())
    text = f"the trainer has not prepared the training within {waited} s"
    return fail(scale, ScaleReason.NOT_PREPARED, text, now), None
