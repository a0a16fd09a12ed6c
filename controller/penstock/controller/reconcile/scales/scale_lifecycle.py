"""What becomes of a Scale after admission: applied, overridden, superseded, expired.

A Scale is *applied* once every pod of the roles it decides exists as it says and every pod that it
takes away is gone; that pods are Ready is not asked, so one pod that cannot start does not hold a
plan open for ever. It is *superseded* when newer Scales decide every field that it names. Pins are
never expired by us: a pin holds its roles until somebody deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from penstock.base.enums import Policy, Role
from penstock.controller.reconcile.desired.targets import SPEC, Target, counts_for_target
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.actions import DeleteScale, PatchScaleStatus
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Scale
from penstock.controller.reconcile.model.target_fields import REPLICAS, FieldKey
from penstock.controller.reconcile.scales.admission import GENERATION, with_conditions
from penstock.crds.conditions import ScaleCondition, ScaleReason

_KEPT: Final = ("number", "preview")  # of a status, beside its conditions
_WORKERS: Final = FieldKey(Role.WORKER, None, REPLICAS)


def settle(
    scales: Iterable[Scale],
    target: Target,
    role_is_settled: Callable[[Role], bool],
    *,
    suspended: bool,
    now: datetime,
) -> list[Scale]:
    """The Scales with Applied and Superseded as they now are.

    Args:
        scales: the job's Scales, decided.
        target: the target that they make.
        role_is_settled: whether the pods of a role are as the target says.
        suspended: whether the job is suspended.
        now: the present time.
    """
    return [
        _settled(scale, target, role_is_settled, suspended, now)
        if scale.is_true(ScaleCondition.ADMITTED) and not scale.is_true(ScaleCondition.FAILED)
        else scale
        for scale in scales
    ]


def _settled(
    scale: Scale,
    target: Target,
    role_is_settled: Callable[[Role], bool],
    suspended: bool,
    now: datetime,
) -> Scale:
    conditions = Conditions(scale.conditions, GENERATION, now)
    applied = conditions.is_true(ScaleCondition.APPLIED)
    deciding = {key.role for key in scale.fields if target.origins.get(key) == scale.name}
    superseded = False
    if scale.dry_run:
        conditions.set(
            ScaleCondition.APPLIED,
            False,
            ScaleReason.DRY_RUN,
            "status.preview says what it would do",
        )
    elif not counts_for_target(scale):
        text = "waits for the trainer to prepare the training"
        conditions.set(ScaleCondition.APPLIED, False, ScaleReason.AWAITING_TRAINER, text)
    elif not deciding:
        reason = _overridden_by(scale, target)
        superseded = reason is ScaleReason.NEWER_SCALE
        if not applied:
            text = "newer Scales decide all of it" if superseded else "kept underneath"
            conditions.set(ScaleCondition.APPLIED, False, reason, text)
    elif not applied:
        if suspended:
            text = "takes effect when the job resumes"
            conditions.set(ScaleCondition.APPLIED, False, ScaleReason.SUSPENDED, text)
        elif all(role_is_settled(role) for role in deciding):
            conditions.set(ScaleCondition.APPLIED, True, ScaleReason.APPLIED)
        else:
            conditions.set(ScaleCondition.APPLIED, False, ScaleReason.CHANGING)
    conditions.set(
        ScaleCondition.SUPERSEDED,
        superseded,
        ScaleReason.NEWER_SCALE if superseded else ScaleReason.IN_EFFECT,
    )
    return with_conditions(scale, conditions.current())


def _overridden_by(scale: Scale, target: Target) -> ScaleReason:
    """Why a Scale that counts decides nothing."""
    kept = scale.policy is Policy.APPLY and any(
        target.underneath.get(key) == scale.name for key in scale.fields
    )
    if not kept:
        return ScaleReason.NEWER_SCALE
    fixed = any(
        target.underneath.get(key) == scale.name and target.origins.get(key) == SPEC
        for key in scale.fields
    )
    return ScaleReason.FIXED_BY_SPEC if fixed else ScaleReason.PINNED_BY_USER


def plan_in_force(scales: Iterable[Scale], target: Target, written: str | None) -> Scale | None:
    """The Scale that a job's status names as its plan.

    It is the newest one that has been applied and still decides something. Where the spec fixes the
    workers' count, a Scale that names another one is not it, whatever it decides of the rest: who
    looks up why the job has so many workers must not be sent to a plan that is not followed.

    Args:
        scales: the job's Scales, settled.
        target: the target that they make.
        written: the name that the status has now; it stays while newer Scales are being applied.
    """
    fixed = target.origins.get(_WORKERS) == SPEC
    origins = set(target.origins.values())
    applied = [
        scale
        for scale in scales
        if scale.is_true(ScaleCondition.APPLIED) and not (fixed and _WORKERS in scale.fields)
    ]
    deciding = [scale for scale in applied if scale.name in origins]
    if not deciding and origins - {SPEC}:
        deciding = [scale for scale in applied if scale.name == written]
    return max(deciding, key=lambda one: one.order, default=None)


def finished_at(scale: Scale) -> datetime | None:
    """When a Scale stopped counting for good, or None while it may still count."""
    for kind in (ScaleCondition.FAILED, ScaleCondition.SUPERSEDED):
        found = scale.conditions.get(kind)
        if found is not None and found.status == "True":
            pinned = scale.policy is Policy.PIN and kind is ScaleCondition.SUPERSEDED
            return None if pinned else found.since
    admitted = scale.conditions.get(ScaleCondition.ADMITTED)
    if scale.dry_run and admitted is not None and admitted.status != "Unknown":
        return admitted.since
    return None


def expire(scales: Iterable[Scale], now: datetime) -> tuple[list[DeleteScale], datetime | None]:
    """The Scales to delete, and when the next one is due.

    Those that no longer count go after their TTL, and the oldest of them sooner where there are
    more than `timing.SCALE_HISTORY`.
    """
    ended = sorted(
        (
            (scale, since)
            for scale in scales
            if not scale.deleting and (since := finished_at(scale)) is not None
        ),
        key=lambda pair: pair[0].order,
    )
    surplus = max(0, len(ended) - timing.SCALE_HISTORY)
    deletions: list[DeleteScale] = []
    due: datetime | None = None
    for index, (scale, since) in enumerate(ended):
        end = since + timedelta(seconds=scale.ttl_seconds)
        if index < surplus or end <= now:
            deletions.append(DeleteScale(scale.name, scale.uid))
        elif due is None or end < due:
            due = end
    return deletions, due


def status_patches(before: Iterable[Scale], after: Iterable[Scale]) -> list[PatchScaleStatus]:
    """The writes that bring the Scales' statuses from what is written to what should be."""
    written = {scale.name: scale for scale in before}
    patches: list[PatchScaleStatus] = []
    for scale in after:
        old = written[scale.name]
        if scale.deleting or (
            scale.conditions == old.conditions and scale.raw_status == old.raw_status
        ):
            continue
        conditions = Conditions(scale.conditions, GENERATION, scale.created)
        status = {"observedGeneration": GENERATION, "conditions": conditions.to_json()}
        status |= {key: scale.raw_status[key] for key in _KEPT if key in scale.raw_status}
        patches.append(
            PatchScaleStatus(scale.name, scale.uid, scale.resource_version, {"status": status})
        )
    return patches
