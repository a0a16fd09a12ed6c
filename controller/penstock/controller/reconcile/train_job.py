"""A TrainJob of Kubeflow that is run in place: what becomes of it and of the ElasticJob it owns.

The TrainJob says what is wanted and shows how it goes; the ElasticJob of the same name, converted
from it and owned by it, is what runs. It is made once the TrainJob is not suspended: until then
others, such as Kueue, may still change what its pods will be. Of a TrainJob that has ended, or that
has another manager, nothing is touched.

What keeps the ElasticJob from being made is a condition of the TrainJob: `FAILED` where it stays
so, `CREATED` (False) where it is tried again. A TrainJob that nothing has held up has no `CREATED`.
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
CREATED: Final = "ElasticJobCreated"
_NODE: Final = "node"
_SHOWN: Final = 1000
_SHOWN_REFUSAL: Final = 600
"""What follows has room in an Event, which has 1024."""


class ObstacleReason(StrEnum):
    """Why there is no ElasticJob of a TrainJob: reasons of its conditions Failed and `CREATED`."""

    NOT_CONVERTIBLE = "NotConvertible"
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    NAME_TAKEN = "NameTaken"
    AWAITS_DELETION = "AwaitsDeletion"
    FORBIDDEN = "Forbidden"
    QUOTA_EXCEEDED = "QuotaExceeded"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why there is no ElasticJob of a TrainJob, and what to do.

    ``final``: none will be made, the TrainJob has failed; else it is tried again.
    """

    reason: ObstacleReason
    message: str
    final: bool = True


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
    """Its name is that of a job that is deleted, or of a TrainJob that mostly is gone: the API
    server then collects it."""
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


def forbidden(refusal: str) -> Obstacle:
    """The API server's word is that an ElasticJob may not be made, or not now."""
    if "exceeded quota" in refusal:
        reason = ObstacleReason.QUOTA_EXCEEDED
        advice = "raise that quota, or delete ElasticJobs of the namespace"
    else:
        reason = ObstacleReason.FORBIDDEN
        advice = (
            "give the controller's service account that right, or change what refuses it (a policy,"
            " a webhook)"
        )
    again = "it is tried again, every minute in the end"
    text = f"no ElasticJob is made: {refusal[:_SHOWN_REFUSAL]}; {advice}: {again}"
    return Obstacle(reason, text, final=False)


def awaited(job: Job, *, owner_lives: bool) -> Obstacle:
    """Why a TrainJob waits for another ElasticJob of its name to go.

    Args:
        job: that ElasticJob.
        owner_lives: the TrainJob that owns it is known to be there.
    """
    there = f"an ElasticJob {job.name} is there"
    if job.deleting:
        message = (
            f"{there}, and is being deleted: this TrainJob's is made once it is gone; if that takes"
            " long, see its metadata.finalizers"
        )
        return Obstacle(ObstacleReason.AWAITS_DELETION, message, final=False)
    whose = f"TrainJob {job.owner_name} (uid {job.owner_uid})"
    advice = "delete that ElasticJob, or give this TrainJob another name"
    if owner_lives:
        message = f"{there}, and belongs to {whose}, which runs: {advice}"
        return Obstacle(ObstacleReason.NAME_TAKEN, message, final=False)
    message = (
        f"{there}, and belongs to {whose}: if that is gone the API server deletes it, and this"
        f" TrainJob's is made then; else {advice}"
    )
    return Obstacle(ObstacleReason.AWAITS_DELETION, message, final=False)


def is_news(train_job: TrainJob, obstacle: Obstacle) -> bool:
    """Whether it was not last written that this very thing holds a TrainJob up."""
    written = read_conditions(train_job.status).get(CREATED)
    return written is None or (written.status, written.reason) != ("False", obstacle.reason)


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
    train_job: TrainJob, job: Job | None, obstacle: Obstacle | None, now: datetime
) -> Json:
    """The status that a TrainJob should have: the written one, where nothing is new.

    Args:
        train_job: one of this controller's.
        job: its ElasticJob; None where there is none, or the one of its name is another's.
        obstacle: why there is no ElasticJob, where something keeps it from being made.
        now: the present time.
    """
    status: Json = copy.deepcopy(dict(train_job.status))
    if train_job.is_over:
        return status
    conditions = Conditions(read_conditions(status), train_job.generation, now)
    if obstacle is not None and obstacle.final:
        conditions.set(FAILED, True, obstacle.reason, obstacle.message)
    _creation(conditions, train_job, job, obstacle)
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


def _creation(
    conditions: Conditions, train_job: TrainJob, job: Job | None, obstacle: Obstacle | None
) -> None:
    """What holds it up, and that nothing does any more, where something once did.

    A message stays for as long as the reason does: what a quota's counts, say, changes with every
    try, and each writing of a status has the TrainJob looked at again.
    """
    written = conditions.get(CREATED)
    if obstacle is not None and not obstacle.final:
        stays = written is not None and written.observed_generation == train_job.generation
        if not stays or is_news(train_job, obstacle):
            conditions.set(CREATED, False, obstacle.reason, obstacle.message)
    elif written is None or obstacle is not None:
        return
    elif job is not None:
        conditions.set(CREATED, True, "Created", "the ElasticJob is there")
    elif train_job.suspended:
        conditions.set(CREATED, False, SUSPENDED, "it is made once the TrainJob goes on")


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
