"""From the JSON of the API server to the frozen values of `observed`, keeping only what is needed.

Reading never raises for an object that the API server holds: a spec that cannot be understood
becomes a value that says so, since one bad object must not stop the work on the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from penstock.base import quantity
from penstock.base.enums import TRAINER_ROLE, Policy, Role, Source
from penstock.controller.reconcile.model.observed import (
    Condition,
    ContainerKind,
    ContainerState,
    Job,
    JobStatus,
    MovedStage,
    Pod,
    Problem,
    RankRecord,
    RoleCounts,
    Scale,
)
from penstock.controller.reconcile.model.target_fields import FieldKey, flatten
from penstock.crds import labels
from penstock.crds.conditions import JobReason
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.main_container import main_of_pod
from penstock.crds.scale import ScaleSpec

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGE_LIMIT: Final = 512
_ROLES_BY_LABEL: Final = {role.in_names: role.value for role in Role} | {TRAINER_ROLE: TRAINER_ROLE}
_REASONS: Final = frozenset(reason.value for reason in JobReason)

Json = Mapping[str, Any]


def read_time(text: str | None) -> datetime | None:
    """A Kubernetes timestamp, with or without a fraction; None for an absent one."""
    return datetime.fromisoformat(text) if text else None


def read_spec(raw: Any) -> tuple[ElasticJobSpec | None, str]:
    """A job's spec, or None and the faults as ``field: value: rule``."""
    try:
        return ElasticJobSpec.model_validate(raw), ""
    except ValidationError as error:
        return None, _faults(error)


def read_job(raw: Json, spec: ElasticJobSpec | None, spec_error: str) -> Job:
    """An ElasticJob; its spec is read apart so that the caller can keep it by generation."""
    metadata = raw["metadata"]
    owners = metadata.get("ownerReferences") or ()
    owner: Json = next((one for one in owners if one.get("controller")), {})
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata.get("generation", 1),
        created=read_time(metadata.get("creationTimestamp")) or EPOCH,
        spec=spec,
        spec_error=spec_error,
        deleting="deletionTimestamp" in metadata,
        managed_by=(raw.get("spec") or {}).get("managedBy"),
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
        owner_uid=owner.get("uid", ""),
        status=read_status(raw.get("status") or {}),
    )


def read_status(raw: Json) -> JobStatus:
    """The part of a job's status that decisions read back."""
    trainer = raw.get("trainer")
    return JobStatus(
        conditions=read_conditions(raw),
        counts={
            role: RoleCounts(**{key: counts.get(key, 0) for key in RoleCounts.__slots__})
            for role, counts in (raw.get("replicas") or {}).items()
        },
        ranks={
            role: {int(rank): _record(record) for rank, record in ranks.items()}
            for role, ranks in (raw.get("ranks") or {}).items()
        },
        trainer=None if trainer is None else _record(trainer),
        start_time=read_time(raw.get("startTime")),
        completion_time=read_time(raw.get("completionTime")),
        suspended_seconds=raw.get("suspendedSeconds", 0),
        problems=_problems(raw),
        partition=_partition(raw),
        raw=raw,
    )


def _problems(raw: Json) -> tuple[Problem, ...]:
    """What the trainer has written. A reason that is not known here is a newer trainer's."""
    return tuple(
        Problem(JobReason(one["reason"]), one.get("message", ""), bool(one.get("fatal")))
        for one in raw.get("problems") or ()
        if one.get("reason") in _REASONS
    )


def _partition(raw: Json) -> tuple[MovedStage, ...]:
    return tuple(
        MovedStage(
            one.get("name", ""),
            one.get("state", ""),
            one.get("prefix", ""),
            one.get("crossingBytes"),
            one.get("movedPercent", 0),
            one.get("why", ""),
        )
        for one in (raw.get("input") or {}).get("partition") or ()
    )


def _record(raw: Json) -> RankRecord:
    return RankRecord(raw.get("incarnation", 0), raw.get("restarts", 0), raw.get("preemptions", 0))


def read_scale(raw: Json) -> Scale:
    """A Scale; ``error`` says what is wrong where its spec cannot be read."""
    metadata = raw["metadata"]
    reference = (raw.get("spec") or {}).get("jobRef") or {}
    fields: dict[FieldKey, Any] = {}
    error = ""
    spec: ScaleSpec | None = None
    try:
        spec = ScaleSpec.model_validate(raw.get("spec"))
        fields = flatten(spec)
    except ValidationError as fault:
        error = _faults(fault)
    except ValueError as fault:
        error = str(fault)
    status = raw.get("status") or {}
    return Scale(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        created=read_time(metadata.get("creationTimestamp")) or EPOCH,
        job_name=reference.get("name", ""),
        job_uid=reference.get("uid", ""),
        source=spec.source if spec else Source.USER,
        policy=spec.policy if spec else Policy.APPLY,
        fields=fields,
        reason=(spec.reason or "") if spec else "",
        job_generation=spec.job_generation if spec else None,
        dry_run=spec.dry_run if spec else False,
        ttl_seconds=spec.ttl_seconds_after_finished if spec else 3600,
        deleting="deletionTimestamp" in metadata,
        error=error,
        owners=tuple(metadata.get("ownerReferences") or ()),
        conditions=read_conditions(status),
        raw_status=status,
    )


def _faults(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in fault['loc'])}: {str(fault['input'])[:80]!r}:"
        f" {fault['msg']}"
        for fault in error.errors(include_url=False)[:3]
    )


def read_conditions(status: Json) -> dict[str, Condition]:
    """The conditions of a status, by type."""
    return {
        raw["type"]: Condition(
            type=raw["type"],
            status=raw["status"],
            reason=raw.get("reason", ""),
            message=raw.get("message", ""),
            since=read_time(raw.get("lastTransitionTime")) or EPOCH,
            observed_generation=raw.get("observedGeneration", 0),
        )
        for raw in status.get("conditions") or ()
    }


def read_pod(raw: Json) -> Pod | None:
    """A pod of a job, or None where its labels do not say which rank of which job it is."""
    metadata = raw["metadata"]
    tags = metadata.get("labels") or {}
    role = _ROLES_BY_LABEL.get(tags.get(labels.ROLE, ""))
    job_uid = tags.get(labels.JOB_UID)
    rank, incarnation = tags.get(labels.RANK, ""), tags.get(labels.INCARNATION, "")
    if role is None or not job_uid or not rank.isdecimal() or not incarnation.isdecimal():
        return None
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    conditions = {found["type"]: found for found in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    scheduled = conditions.get("PodScheduled") or {}
    unschedulable = (
        scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    )
    resize = conditions.get("PodResizePending") or {}
    main = main_of_pod(raw)
    requests = _requests(main)
    cost = (metadata.get("annotations") or {}).get(labels.POD_DELETION_COST, "0")
    created = read_time(metadata.get("creationTimestamp")) or EPOCH
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        job_uid=job_uid,
        role=role,
        rank=int(rank),
        incarnation=int(incarnation),
        created=created,
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        message=status.get("message", "")[:_MESSAGE_LIMIT],
        node=spec.get("nodeName", ""),
        deleting="deletionTimestamp" in metadata,
        ready=ready.get("status") == "True",
        ready_since=read_time(ready.get("lastTransitionTime")),
        started=read_time(status.get("startTime")),
        unschedulable_since=(
            read_time(scheduled.get("lastTransitionTime")) or created if unschedulable else None
        ),
        unschedulable_message=(
            scheduled.get("message", "")[:_MESSAGE_LIMIT] if unschedulable else ""
        ),
        disrupted=(conditions.get("DisruptionTarget") or {}).get("status") == "True",
        gated=any(
            gate.get("name") == labels.PLACEMENT_GATE for gate in spec.get("schedulingGates") or ()
        ),
        deletion_cost=int(cost) if cost.removeprefix("-").isdecimal() else 0,
        cpu_milli=_parsed(quantity.parse_milli_cpu, requests.get("cpu")),
        memory_bytes=_parsed(quantity.parse_bytes, requests.get("memory")),
        resize_infeasible=resize.get("reason") == "Infeasible",
        containers=_containers(status, _kinds(spec, main)),
    )


def _requests(container: Json) -> Json:
    """Requests of a container, with its limits where it has no request of that name."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _parsed(parse: Any, text: str | int | None) -> int | None:
    try:
        return None if text is None else int(parse(text))
    except ValueError:  # an older API server accepted it; no figure is better than a wrong one
        return None


def _kinds(spec: Json, main: Json) -> dict[str, ContainerKind]:
    """What each container is, by its name: one name is one container of a pod."""
    kinds = {
        one.get("name", ""): (
            ContainerKind.SIDECAR if one.get("restartPolicy") == "Always" else ContainerKind.INIT
        )
        for one in spec.get("initContainers") or ()
    }
    for one in spec.get("containers") or ():
        kinds[one.get("name", "")] = ContainerKind.MAIN if one is main else ContainerKind.BESIDE
    return kinds


def _containers(status: Json, kinds: Mapping[str, ContainerKind]) -> tuple[ContainerState, ...]:
    return tuple(
        _container(raw, kinds.get(raw.get("name", ""), ContainerKind.BESIDE))
        for field in ("initContainerStatuses", "containerStatuses")
        for raw in status.get(field) or ()
    )


def _container(raw: Json, kind: ContainerKind) -> ContainerState:
    state = raw.get("state") or {}
    ended, waiting = state.get("terminated"), state.get("waiting") or {}
    if ended is None:
        return ContainerState(
            name=raw.get("name", ""),
            waiting=waiting.get("reason", ""),
            message=waiting.get("message", "")[:_MESSAGE_LIMIT],
            kind=kind,
            restarts=raw.get("restartCount", 0),
        )
    return ContainerState(
        name=raw.get("name", ""),
        exit_code=ended.get("exitCode", 0),
        reason=ended.get("reason", ""),
        message=ended.get("message", "")[-_MESSAGE_LIMIT:],
        finished_at=read_time(ended.get("finishedAt")),
        kind=kind,
    )
