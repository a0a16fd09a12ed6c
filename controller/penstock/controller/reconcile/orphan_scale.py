"""A Scale whose job does not exist, or is another one of the same name."""

from __future__ import annotations

from datetime import datetime

from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.actions import Action, RequeueAt
from penstock.controller.reconcile.model.observed import Scale
from penstock.controller.reconcile.scales import scale_lifecycle
from penstock.controller.reconcile.scales.admission import fail, refuse
from penstock.crds.conditions import ScaleCondition, ScaleReason


def reconcile_lone_scale(scale: Scale, now: datetime) -> list[Action]:
    """Refuse the Scale, after a pause in which its job may still be seen, and let it expire."""
    if scale.deleting:
        return []
    due = scale.created + timing.LONE_SCALE_GRACE
    if now < due:
        return [RequeueAt(due)]
    text = (
        f"spec.jobRef: no ElasticJob {scale.job_name!r} with uid {scale.job_uid!r} exists in"
        f" namespace {scale.namespace}"
    )
    after = scale
    if not scale.is_decided:
        after = refuse(scale, ScaleReason.JOB_NOT_FOUND, text, now)
    elif not scale.is_true(ScaleCondition.FAILED):
        after = fail(scale, ScaleReason.JOB_NOT_FOUND, text, now)
    deletions, end = scale_lifecycle.expire([after], now)
    actions: list[Action] = [*scale_lifecycle.status_patches([scale], [after]), *deletions]
    if end is not None:
        actions.append(RequeueAt(end))
    return actions
