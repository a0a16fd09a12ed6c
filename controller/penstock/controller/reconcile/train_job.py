"""A TrainJob of Kubeflow that is run in place: what becomes of it and of the ElasticJob it owns.

The TrainJob says what is wanted and shows how it goes; the ElasticJob of the same name, converted
from it and owned by it, is what runs. It is made once the TrainJob is not suspended: until then
others, such as Kueue, may still change what its pods will be. Of a TrainJob that has ended, or that
has another manager, nothing is touched.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum, auto
from typing import Any, Final

from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Job
from penstock.controller.reconcile.model.parsing import EPOCH, read_conditions, read_time
from penstock.convert.assembly import Conversion
from penstock.convert.convert import convert
from penstock.convert.source import Outcome
from penstock.convert.sources.train_job import QUEUE
from penstock.crds.conditions import JobCondition

Json = dict[str, Any]

KIND: Final = "TrainJob"
RUNTIME_PLURALS: Final = {
    "ClusterTrainingRuntime": "clustertrainingruntimes",
    "TrainingRuntime": "trainingruntimes",
}
RUNTIME_GRACE_SECONDS: Final = 60.0
"""How long a runtime may come after the TrainJob that names it, as from one file."""

SUSPENDED: Final = "Suspended"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
_NODE: Final = "node"
_SHOWN: Final = 1000


class RefusalReason(StrEnum):
    """Why there is no ElasticJob of a TrainJob: reasons of its condition Failed."""

    NOT_CONVERTIBLE = "NotConvertible"
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    NAME_TAKEN = "NameTaken"


@dataclass(frozen=True, slots=True)
class TrainJob:
    """A TrainJob, as far as it matters; ``document`` is the whole of it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created: datetime
    api_version: str
    managed_by: str
    suspended: bool
    deleting: bool
    document: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, which its ElasticJob has as well."""
        return self.namespace, self.name

    @property
    def status(self) -> Mapping[str, Any]:
        """What was last written of how it goes."""
        return self.document.get("status") or {}

    @property
    def is_over(self) -> bool:
        """Whether it was last written that it has ended."""
        written = read_conditions(self.status)
        return any(
            kind in written and written[kind].status == "True" for kind in (COMPLETE, FAILED)
        )


def read_train_job(raw: Mapping[str, Any]) -> TrainJob:
    """A TrainJob as the API server shows it."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    return TrainJob(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata.get("generation", 1),
        created=read_time(metadata.get("creationTimestamp")) or EPOCH,
        api_version=raw.get("apiVersion") or "trainer.kubeflow.org/v1alpha1",
        managed_by=spec.get("managedBy") or "",
        suspended=bool(spec.get("suspend")),
        deleting="deletionTimestamp" in metadata,
        document=raw,
    )


class Step(Enum):
    """What is to be done next for a TrainJob."""

    NOTHING = auto()
    MAKE = auto()
    SUSPEND = auto()
    RESUME = auto()
    AWAIT_OLD_JOB = auto()
    """Its name is that of the job of a TrainJob that is gone, which the API server collects."""
    NAME_TAKEN = auto()


def next_step(train_job: TrainJob, job: Job | None) -> Step:
    """What is to be done about the ElasticJob of a TrainJob.

    Args:
        train_job: one of this controller's.
        job: the ElasticJob of its name, whoever made it.
    """
    if train_job.deleting or train_job.is_over:
        return Step.NOTHING
    if job is None:
        return Step.NOTHING if train_job.suspended else Step.MAKE
    if job.owner_uid != train_job.uid:
        if job.deleting or job.owner_kind == KIND:
            return Step.AWAIT_OLD_JOB
        return Step.NAME_TAKEN
    if job.spec is None or job.deleting or _has_ended(job):
        return Step.NOTHING
    if job.spec.suspend == train_job.suspended:
        return Step.NOTHING
    return Step.SUSPEND if train_job.suspended else Step.RESUME


def named_runtime(train_job: TrainJob) -> tuple[str, str]:
    """Plural and name of the runtime that a TrainJob names; empty where it names none of a kind."""
    reference = (train_job.document.get("spec") or {}).get("runtimeRef") or {}
    kind = reference.get("kind") or "ClusterTrainingRuntime"
    return RUNTIME_PLURALS.get(kind, ""), reference.get("name") or ""


def converted(train_job: TrainJob, runtime: Mapping[str, Any] | None) -> Conversion:
    """The ElasticJob of a TrainJob.

    Whether it is suspended, and a queue of Kueue's, stay with the TrainJob: whoever queues it holds
    back the whole of it, and not each pod once more.

    Raises:
        RefusedError: it has no correspondence.
    """
    document: Json = {
        "apiVersion": train_job.api_version,
        "kind": KIND,
        "metadata": _metadata(train_job),
        "spec": copy.deepcopy(dict(train_job.document.get("spec") or {})),
    }
    for field in ("managedBy", "suspend"):
        document["spec"].pop(field, None)
    conversion = convert(document, () if runtime is None else (dict(runtime),))
    conversion.result["metadata"]["ownerReferences"] = [
        {
            "apiVersion": train_job.api_version,
            "kind": KIND,
            "name": train_job.name,
            "uid": train_job.uid,
            "controller": True,
        }
    ]
    return conversion


def _metadata(train_job: TrainJob) -> Json:
    given = train_job.document["metadata"]
    kept: Json = {"name": train_job.name, "namespace": train_job.namespace}
    tags = {key: value for key, value in (given.get("labels") or {}).items() if key != QUEUE}
    for field, value in (("labels", tags), ("annotations", given.get("annotations"))):
        if value:
            kept[field] = dict(value)
    return kept


def account(conversion: Conversion) -> str:
    """What the conversion dropped or asks for, in a line for an Event."""
    lost = [note for note in conversion.notes if note.outcome is not Outcome.CHANGED]
    text = "; ".join(f"{note.field}: {note.outcome}: {note.meaning}" for note in lost)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return "as an ElasticJob of its name" + (f"; {shown}" if shown else "")


def status_of(
    train_job: TrainJob, job: Job | None, refusal: tuple[str, str] | None, now: datetime
) -> Json:
    """The status that a TrainJob should have: the written one, where nothing is new.

    Args:
        train_job: one of this controller's.
        job: its ElasticJob; None where there is none, or the one of its name is another's.
        refusal: reason and message, where there can be no ElasticJob.
        now: the present time.
    """
    status: Json = copy.deepcopy(dict(train_job.status))
    if train_job.is_over:
        return status
    conditions = Conditions(read_conditions(status), train_job.generation, now)
    if refusal is not None:
        conditions.set(FAILED, True, *refusal)
    _suspension(conditions, train_job, job)
    for kind, of_job in ((COMPLETE, JobCondition.SUCCEEDED), (FAILED, JobCondition.FAILED)):
        found = job.status.conditions.get(of_job) if job is not None else None
        if found is not None and found.status == "True":
            conditions.set(kind, True, found.reason or kind, found.message)
    if conditions.changed:
        status["conditions"] = conditions.to_json()
    if job is not None:
        status["jobsStatus"] = [_counts(job)]
    return status


def _suspension(conditions: Conditions, train_job: TrainJob, job: Job | None) -> None:
    """Suspended is told once nothing runs any more; that it goes on, where it once was."""
    if train_job.suspended:
        if job is None or job.status.is_true(JobCondition.SUSPENDED):
            conditions.set(SUSPENDED, True, "Suspended", "the TrainJob is suspended")
    elif conditions.get(SUSPENDED) is not None:
        conditions.set(SUSPENDED, False, "Resumed", "the TrainJob is resumed")


def _counts(job: Job) -> Json:
    """The training as Kubeflow counts it: one Job, whatever the number of its pods."""
    succeeded = job.status.is_true(JobCondition.SUCCEEDED)
    failed = job.status.is_true(JobCondition.FAILED)
    suspended = job.status.is_true(JobCondition.SUSPENDED)
    over = succeeded or failed
    return {
        "name": _NODE,
        "ready": int(succeeded or (job.status.is_true(JobCondition.RUNNING) and not over)),
        "succeeded": int(succeeded),
        "failed": int(failed),
        "active": int(not over and not suspended),
        "suspended": int(suspended and not over),
    }


def _has_ended(job: Job) -> bool:
    return any(job.status.is_true(kind) for kind in (JobCondition.SUCCEEDED, JobCondition.FAILED))
