"""The Scales that the controller writes itself: its own changes take the same road as others.

Their names follow from what caused them (a pod that died, a generation of the spec), so that
writing one twice, before and after a crash, writes it once; and they begin with a time, so that
Scales of one second are ordered as they came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from penstock.base import quantity
from penstock.base.enums import DATA_ROLES, Policy, Role, Source
from penstock.controller.reconcile.desired.targets import (
    SPEC,
    SPEC_CHANGED,
    Held,
    Target,
    bounds,
    counts_for_target,
    is_spec_edit,
)
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.actions import AdoptScale, CreateScale
from penstock.controller.reconcile.model.objects import job_labels, owner_reference
from penstock.controller.reconcile.model.observed import Job, Pod, Scale
from penstock.controller.reconcile.model.target_fields import (
    MEMORY,
    MIN_INCARNATION,
    REPLICAS,
    FieldKey,
)
from penstock.crds.conditions import ScaleCondition
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.group import API_VERSION, SCALE_KIND

OUT_OF_MEMORY: Final = "OutOfMemory"
DATA_WORKERS_FAILING: Final = "DataWorkersFailing"


def _manifest(
    job: Job, name: str, roles: Mapping[str, Any], reason: str, message: str
) -> CreateScale:
    return CreateScale(
        {
            "apiVersion": API_VERSION,
            "kind": SCALE_KIND,
            "metadata": {
                "name": name,
                "namespace": job.namespace,
                "labels": job_labels(job),
                "ownerReferences": [{**owner_reference(job), "blockOwnerDeletion": False}],
            },
            "spec": {
                "jobRef": {"name": job.name, "uid": job.uid},
                "roles": dict(roles),
                "source": Source.CONTROLLER.value,
                "policy": Policy.APPLY.value,
                "reason": reason,
                "message": message[:1024],
            },
        }
    )


def adoptions(job: Job, scales: Iterable[Scale]) -> list[AdoptScale]:
    """Owner references for the Scales of others, so that they go when the job goes.

    Not as their controller: a Scale may have one already.
    """
    reference = {key: owner_reference(job)[key] for key in ("apiVersion", "kind", "name", "uid")}
    return [
        AdoptScale(scale.name, scale.uid, (*scale.owners, reference))
        for scale in scales
        if not scale.owned and not scale.deleting
    ]


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y%m%d%H%M%S")


def covering(scales: Iterable[Scale], role: Role, pod: Pod) -> Scale | None:
    """The controller's Scale that answers a pod's death for lack of memory, if it was written.

    It is the one that asks for an incarnation of the rank later than the pod's.
    """
    key = FieldKey(role, pod.rank, MIN_INCARNATION)
    found = [
        scale
        for scale in scales
        if scale.source is Source.CONTROLLER
        and scale.reason == OUT_OF_MEMORY
        and scale.fields.get(key, 0) > pod.incarnation
    ]
    return min(found, key=lambda one: one.order, default=None)


def more_memory(job: Job, role: Role, pods: list[Pod], scales: Iterable[Scale]) -> CreateScale:
    """A Scale that doubles the memory of the ranks whose pods ran out of it.

    What earlier Scales of this kind gave other ranks is repeated, so that the newest one holds all
    of it and the earlier ones expire.
    """
    ranks: dict[int, dict[str, Any]] = {}
    for scale in sorted(scales, key=lambda one: one.order):
        if (
            scale.source is Source.CONTROLLER
            and scale.reason == OUT_OF_MEMORY
            and counts_for_target(scale)
        ):
            for key, value in scale.fields.items():
                if key.role is role and key.rank is not None:
                    ranks.setdefault(key.rank, {})[key.name] = value
    for pod in pods:
        assert pod.memory_bytes is not None
        ranks[pod.rank] = {MEMORY: 2 * pod.memory_bytes, MIN_INCARNATION: pod.incarnation + 1}
    spelt = {
        str(rank): {
            name: quantity.format_bytes(value) if name == MEMORY else value
            for name, value in sorted(own.items())
        }
        for rank, own in sorted(ranks.items())
    }
    first = min(pods, key=lambda pod: pod.rank)
    name = f"{job.name}-{_stamp(_death(first))}-oom-{first.label}-{first.incarnation}"
    told = ", ".join(pod.label for pod in sorted(pods, key=lambda pod: pod.rank)[:20])
    return _manifest(
        job, name, {role.value: {"ranks": spelt}}, OUT_OF_MEMORY, f"doubles the memory of {told}"
    )


def more_servers(job: Job, spec: ElasticJobSpec, pod: Pod, target: Target) -> CreateScale | None:
    """A Scale that doubles the number of parameter servers, or None where there may be no more.

    It asks for a new incarnation of the server that ran out of memory, too.
    """
    current = target.role(Role.PS).replicas
    wanted = min(2 * current, bounds(spec, Role.PS)[1])
    fixed = target.origins.get(FieldKey(Role.PS, None, REPLICAS)) == SPEC
    if wanted <= current or fixed:
        return None
    name = f"{job.name}-{_stamp(_death(pod))}-oom-{pod.label}-{pod.incarnation}"
    roles = {
        Role.PS.value: {
            "replicas": wanted,
            "ranks": {str(pod.rank): {MIN_INCARNATION: pod.incarnation + 1}},
        }
    }
    text = f"{pod.label} ran out of memory: {current} to {wanted} parameter servers"
    return _manifest(job, name, roles, OUT_OF_MEMORY, text)


def was_answered_by_servers(scales: Iterable[Scale], rank: int) -> bool:
    """Whether a rank's lack of memory has already led to more servers.

    If it runs out again, its share did not shrink with their number: that one server holds far more
    than the mean, and needs more memory of its own instead.
    """
    return any(
        scale.source is Source.CONTROLLER
        and scale.reason == OUT_OF_MEMORY
        and FieldKey(Role.PS, None, REPLICAS) in scale.fields
        and FieldKey(Role.PS, rank, MIN_INCARNATION) in scale.fields
        and scale.is_true(ScaleCondition.APPLIED)
        for scale in scales
    )


def more_servers_failed(scales: Iterable[Scale]) -> bool:
    """Whether more servers have been asked for and cannot be had: over quota, or not prepared."""
    return any(
        scale.source is Source.CONTROLLER
        and scale.reason == OUT_OF_MEMORY
        and FieldKey(Role.PS, None, REPLICAS) in scale.fields
        and scale.is_true(ScaleCondition.FAILED)
        for scale in scales
    )


def memory_in_vain(scales: Iterable[Scale], pod: Pod) -> str:
    """Why a server that ran out of memory does not have what it was to get for an earlier death.

    "" where no more memory was asked for, where the pod had it, or where that is still under way.
    """
    key = FieldKey(Role.PS, pod.rank, MEMORY)
    asked = [
        scale
        for scale in scales
        if scale.source is Source.CONTROLLER
        and scale.reason == OUT_OF_MEMORY
        and scale.fields.get(key, 0) > (pod.memory_bytes or 0)
    ]
    newest = max(asked, key=lambda one: one.order, default=None)
    if newest is None:
        return ""
    if newest.is_true(ScaleCondition.FAILED):
        return f"Scale {newest.name} failed: {newest.conditions[ScaleCondition.FAILED].message}"
    # Of an older one the count of servers may have gone down and up since, which forgets it: then
    # asking again helps.
    direct = newest.fields.get(FieldKey(Role.PS, pod.rank, MIN_INCARNATION)) == pod.incarnation
    if direct and newest.is_true(ScaleCondition.PREPARED):
        return f"Scale {newest.name} asks for more, and a pin or a later Scale keeps it as it is"
    return ""


def _death(pod: Pod) -> datetime:
    return max((one.finished_at for one in pod.containers if one.finished_at), default=pod.created)


def spec_edit(
    job: Job, spec: ElasticJobSpec, scales: Iterable[Scale], held: Held, now: datetime
) -> tuple[CreateScale | None, datetime | None]:
    """The Scale by which an edited count of a role in `CONSENT` is prepared, if one is due.

    One is written for each generation of the spec; if it fails, another after a pause.

    Returns:
        The Scale, or when to look again, or neither.
    """
    for role, declared in spec.replica_specs.by_role().items():
        if declared.replicas in {0, held.counts.get(role, 0)} or role not in held.counts:
            continue
        tried = [
            scale
            for scale in scales
            if is_spec_edit(scale)
            and scale.job_generation == job.generation
            and scale.names_role(role)
        ]
        failures = [
            found.since
            for scale in tried
            if (found := scale.conditions.get(ScaleCondition.FAILED)) and found.status == "True"
        ]
        if len(failures) < len(tried):
            continue  # one is under way
        due = max(failures, default=job.created) + timing.PREPARATION
        if failures and now < due:
            return None, due
        numbers = {scale.name.rpartition("-")[2] for scale in tried}
        number = next(one for one in range(len(tried) + 1) if str(one) not in numbers)
        return _spec_edit(job, role, declared.replicas, number), None
    return None, None


def _spec_edit(job: Job, role: Role, replicas: int, number: int) -> CreateScale:
    name = f"{job.name}-spec-{job.generation:010d}-{role.in_names}-{number}"
    written = _manifest(
        job,
        name,
        {role.value: {"replicas": replicas}},
        SPEC_CHANGED,
        f"spec.replicaSpecs.{role.value}.replicas is now {replicas}",
    )
    written.manifest["spec"]["jobGeneration"] = job.generation
    return written


def run_input_locally(
    job: Job,
    role: Role,
    failures: list[tuple[datetime, Pod]],
    target: Target,
    scales: Iterable[Scale],
    pinned: Iterable[FieldKey],
    now: datetime,
) -> CreateScale | None:
    """A Scale that takes a role's data workers away after several failures in a short time, if due.

    Args:
        job: the job.
        role: one of `DATA_ROLES`.
        failures: when which pod of the role failed, as far as they are still there.
        target: the job's target.
        scales: its Scales.
        pinned: fields that a person has pinned: those are left to that person.
        now: the present time.
    """
    key = FieldKey(role, None, REPLICAS)
    if not target.role(role).replicas or key in set(pinned):
        return None
    if target.origins.get(key) == SPEC:
        return None
    last = max(
        (
            one.created
            for one in scales
            if one.reason == DATA_WORKERS_FAILING and one.names_role(role)
        ),
        default=None,
    )
    recent = [
        at
        for at, _ in failures
        if now - at <= timing.DATA_WORKER_WINDOW and (last is None or at > last)
    ]
    if len(recent) < timing.DATA_WORKER_FAILURES:
        return None
    minutes = int(timing.DATA_WORKER_WINDOW.total_seconds() // 60)
    text = f"{len(recent)} failures of {role.in_words} within {minutes} min: the input runs locally"
    name = f"{job.name}-{_stamp(max(recent))}-{role.in_names}s"
    return _manifest(job, name, {role.value: {"replicas": 0}}, DATA_WORKERS_FAILING, text)


def input_runs_locally(scales: Iterable[Scale], target: Target) -> bool:
    """Whether a count of data workers in force is the one of `run_input_locally`."""
    origins = {target.origins.get(FieldKey(role, None, REPLICAS)) for role in DATA_ROLES}
    return any(scale.name in origins and scale.reason == DATA_WORKERS_FAILING for scale in scales)
