"""What a job's own status says when a pass over it failed in a way that nobody foresaw."""

from __future__ import annotations

from datetime import datetime

from penstock.controller.reconcile.model.actions import Action, PatchJobStatus
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Job
from penstock.crds.conditions import JobCondition, JobReason


def name_fault(job: Job, fault: str, now: datetime) -> list[Action]:
    """Name a fault of the controller in the job's status; once, while it stays the same.

    Nothing follows from it: the job is tried again after its pause.
    """
    if job.deleting:
        return []
    conditions = Conditions(job.status.conditions, job.generation, now)
    text = f"{fault}; the controller's log has the rest"
    conditions.set(JobCondition.ACCEPTED, None, JobReason.CONTROLLER_FAULT, text)
    if not conditions.changed:
        return []
    patch = {"status": {"conditions": conditions.to_json()}}
    return [PatchJobStatus(job.resource_version, patch, final=True)]
