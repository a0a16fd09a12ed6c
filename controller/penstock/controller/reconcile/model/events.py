"""Which changes of a job's conditions are worth an Event, and as what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.controller.reconcile.model.actions import RecordEvent
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Scale
from penstock.crds.conditions import JobCondition, JobReason, ScaleCondition
from penstock.crds.events import EventReason

_BY_STATUS: Final[Mapping[tuple[str, str], EventReason]] = {
    (JobCondition.ACCEPTED, "False"): EventReason.REFUSED,
    (JobCondition.PLANNED, "True"): EventReason.PLANNED,
    (JobCondition.PLANNED, "False"): EventReason.BRAIN_UNAVAILABLE,
    (JobCondition.RUNNING, "True"): EventReason.RUNNING,
    (JobCondition.SUSPENDED, "True"): EventReason.SUSPENDED,
    (JobCondition.STORAGE_HEALTHY, "False"): EventReason.STORAGE_FAILING,
    (JobCondition.STORAGE_HEALTHY, "True"): EventReason.STORAGE_RECOVERED,
    (JobCondition.INPUT_PARTITIONED, "True"): EventReason.INPUT_PARTITIONED,
    (JobCondition.INPUT_PARTITIONED, "False"): EventReason.INPUT_AS_WRITTEN,
    (JobCondition.SUCCEEDED, "True"): EventReason.SUCCEEDED,
    (JobCondition.FAILED, "True"): EventReason.FAILED,
}
_SCALING: Final[Mapping[str, EventReason]] = {
    JobReason.UNSCHEDULABLE: EventReason.UNSCHEDULABLE,
    JobReason.IMAGE_UNAVAILABLE: EventReason.STARTUP_BLOCKED,
    JobReason.INVALID_CONTAINER: EventReason.STARTUP_BLOCKED,
    JobReason.POD_REFUSED: EventReason.STARTUP_BLOCKED,
}
_RUNNING: Final[Mapping[str, EventReason]] = {
    JobReason.TRAINING_STANDS_STILL: EventReason.TRAINING_STANDS_STILL,
    JobReason.HUNG_PROCESS_ENDED: EventReason.HUNG_PROCESS_ENDED,
    JobReason.BUDGET_NOT_KEPT: EventReason.BUDGET_NOT_KEPT,
}

_NO_NEWS: Final = frozenset(
    {
        JobReason.ACCEPTED,
        JobReason.NO_PLAN_WANTED,
        JobReason.NOTHING_DECLARED,
        JobReason.PARTITION_OFF,
    }
)
"""Said by the Event about the pods that follow, or by the spec; each Event is a call."""


def of_scales(before: Iterable[Scale], after: Iterable[Scale]) -> list[RecordEvent]:
    """The Events for Scales that a pass has found not to count."""
    failed = {one.name for one in before if one.is_true(ScaleCondition.FAILED)}
    return [
        RecordEvent(
            EventReason.SCALE_REFUSED,
            f"Scale {scale.name}: {scale.conditions[ScaleCondition.FAILED].message}"[:1024],
        )
        for scale in after
        if scale.is_true(ScaleCondition.FAILED) and scale.name not in failed
    ]


def transitions(conditions: Conditions) -> list[RecordEvent]:
    """The Events for what a pass changed; none for what stayed."""
    events: list[RecordEvent] = []
    for kind in JobCondition:
        found = conditions.get(kind)
        if found is None or not conditions.has_flipped(kind) or found.reason in _NO_NEWS:
            continue
        if kind is JobCondition.STORAGE_HEALTHY and not _is_storage_news(conditions):
            continue
        known = _BY_STATUS.get((kind, found.status))
        if kind is JobCondition.SCALING and found.reason in _SCALING:
            known = _SCALING[found.reason]
        if kind is JobCondition.RUNNING:
            known = _RUNNING.get(found.reason, known)
        if known is not None:
            events.append(RecordEvent(known, found.message[:1024] or found.reason))
    return events


def _is_storage_news(conditions: Conditions) -> bool:
    """Whether storage fails, or fails no more: that it is healthy to begin with is no news."""
    kind = JobCondition.STORAGE_HEALTHY
    return not conditions.is_true(kind) or conditions.was_false(kind)
