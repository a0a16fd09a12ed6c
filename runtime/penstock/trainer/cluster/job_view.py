"""What a trainer reads out of its ElasticJob and pods, and what it writes as a Scale: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.base import quantity
from penstock.base.enums import Framework, OnHang, Policy, Role, Source
from penstock.crds import labels
from penstock.crds.elasticjob import ElasticJob
from penstock.crds.group import API_VERSION, SCALE_KIND
from penstock.crds.main_container import has_ended, main_of_pod
from penstock.crds.replica_spec import ReplicaSpec, WorkerSpec
from penstock.crds.scale import Algorithm, JobReference, Scale, ScaleSpec
from penstock.job.identities import PodIdentity
from penstock.parameter_server.control.records.servers import ServerPod
from penstock.trainer.control.model.job import DEFAULT_SLOTS_PER_STEP, JobFacts
from penstock.trainer.standstill.response import AFTER_SECONDS, HangPolicy
from penstock.wire import JobRegistration, Plan, RoleDescription, Signature
from penstock.wire.jobs import MOST_BUDGET

Json = dict[str, Any]
_RUNNING: Final = "Running"


@dataclass(frozen=True)
class WorkerPods:
    """The job's worker pods, as far as membership needs them."""

    expected: frozenset[int]
    """Ranks that have a pod that lives and is to stay."""
    ended: tuple[tuple[int, int], ...]
    """(rank, incarnation) of pods whose processes have ended."""
    running: frozenset[tuple[int, int]] = frozenset()
    """(rank, incarnation) of expected pods whose containers have started."""


def worker_pods(pods: Iterable[Mapping[str, Any]]) -> WorkerPods:
    """Read the worker pods. A pod without our labels is none of ours."""
    expected, running, ended = set(), set(), []
    for pod in pods:
        metadata = pod["metadata"]
        tags = metadata.get("labels") or {}
        rank, incarnation = tags.get(labels.RANK, ""), tags.get(labels.INCARNATION, "")
        worker = tags.get(labels.ROLE) == Role.WORKER.in_names
        if not (worker and rank.isdecimal() and incarnation.isdecimal()):
            continue
        if has_ended(pod):
            ended.append((int(rank), int(incarnation)))
        elif "deletionTimestamp" not in metadata:
            expected.add(int(rank))
            if (pod.get("status") or {}).get("phase") == _RUNNING:
                running.add((int(rank), int(incarnation)))
    return WorkerPods(frozenset(expected), tuple(ended), frozenset(running))


@dataclass(frozen=True)
class PodLimits:
    """What one pod of a role may use; None: no limit."""

    milli_cpu: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class RolePods:
    """The job's live pods of all roles with their limits, and its servers' pods."""

    limits: Mapping[tuple[Role, int], PodLimits]
    servers: Mapping[tuple[int, int], ServerPod]
    """By rank and incarnation: those that live."""
    ended_servers: frozenset[tuple[int, int]]
    accelerated: frozenset[str] = frozenset()
    """Names of the accelerated data workers' pods that live."""


def role_pods(pods: Iterable[Mapping[str, Any]]) -> RolePods:
    """Read the pods' limits, of each rank those of the newest incarnation, and the servers."""
    by_name = {role.in_names: role for role in Role}
    newest: dict[tuple[Role, int], int] = {}
    limits: dict[tuple[Role, int], PodLimits] = {}
    servers: dict[tuple[int, int], ServerPod] = {}
    ended, accelerated = set(), set()
    for pod in pods:
        metadata = pod["metadata"]
        tags = metadata.get("labels") or {}
        role = by_name.get(tags.get(labels.ROLE, ""))
        written = (tags.get(labels.RANK, ""), tags.get(labels.INCARNATION, ""))
        if role is None or not all(each.isdecimal() for each in written):
            continue
        rank, incarnation = int(written[0]), int(written[1])
        own = _limits(pod)
        if has_ended(pod):
            if role is Role.PS:
                ended.add((rank, incarnation))
            continue
        if incarnation >= newest.get((role, rank), -1):
            newest[role, rank], limits[role, rank] = incarnation, own
        if role is Role.ACCELERATED_DATA_WORKER:
            accelerated.add(str(metadata.get("name", "")))
        if role is Role.PS:
            leaving = "deletionTimestamp" in metadata
            servers[rank, incarnation] = ServerPod(leaving, own.memory_bytes)
    return RolePods(limits, servers, frozenset(ended), frozenset(accelerated))


def _limits(pod: Mapping[str, Any]) -> PodLimits:
    stated = (main_of_pod(pod).get("resources") or {}).get("limits") or {}
    cpu, memory = _stated(stated.get("cpu")), _stated(stated.get("memory"))
    return PodLimits(
        quantity.parse_milli_cpu(cpu) if cpu is not None else None,
        quantity.parse_bytes(memory) if memory is not None else None,
    )


def facts_of(job: ElasticJob) -> JobFacts:
    """What the job's spec means for its training."""
    worker, policy = job.spec.replica_specs.worker, job.spec.failure_policy
    ranks = (job.status.ranks if job.status is not None else None) or {}
    been_through = ranks.get(Role.WORKER) or {}
    return JobFacts(
        slots_per_step=worker.max_replicas or DEFAULT_SLOTS_PER_STEP,
        lease_seconds=float(job.spec.input.lease_seconds),
        guarantee=job.spec.input.guarantee,
        skip_bad=job.spec.input.skip_bad,
        min_workers=worker.min_replicas,
        node_unit=worker.unit,
        suspended=job.spec.suspend,
        # TensorFlow's programs form their group by themselves, and it says nothing of it here.
        independent=bool(job.spec.independent_workers)
        or job.spec.framework is Framework.TENSORFLOW,
        hang_policy=HangPolicy(
            response=policy.on_hang or OnHang.REPORT,
            after_seconds=float(policy.on_hang_after_seconds or AFTER_SECONDS),
            most=policy.max_restarts,
        ),
        rank_failures={int(rank): one.restarts for rank, one in been_through.items()},
    )


def registration_of(
    job: ElasticJob,
    slots_per_step: int | None,
    global_batch: int | None,
    total_steps: int | None = None,
) -> JobRegistration:
    """The job as the Brain is told about it."""
    spec = job.spec
    said = spec.signature.model_dump(exclude_none=True) if spec.signature else {}
    return JobRegistration(
        name=job.metadata.name,
        namespace=job.metadata.namespace or "default",
        strategy=spec.strategy,
        optimize=spec.optimize,
        signature=Signature(**said),
        resource_limits=dict(spec.resource_limits or {}),
        roles={role: _role(each) for role, each in spec.replica_specs.by_role().items()},
        slots_per_step=slots_per_step,
        global_batch=global_batch,
        total_steps=total_steps,
        objective=spec.objective,
        deadline_seconds=spec.deadline.timestamp() if spec.deadline else None,
        budget=_budget(spec.budget),
    )


def _budget(said: str | None) -> float | None:
    return None if said is None else min(float(quantity.parse(said)), MOST_BUDGET)


def scale_of(plan: Plan, identity: PodIdentity) -> Json | None:
    """The Scale that carries a plan out; None when it is none of the trainer's to write.

    Its name is made of the plan's time, so that the names of one job's Scales sort by time, and of
    its id, so that writing a plan twice is refused by the API server.
    """
    if plan.source is not Source.BRAIN or plan.held or not plan.roles or plan.scale:
        return None
    algorithm = plan.algorithm
    scale = Scale(
        metadata={
            "name": f"{identity.job}-{int(plan.created_seconds * 1000):013d}-{plan.id}",
            "namespace": identity.namespace,
            "annotations": {labels.PLAN: str(plan.id)},
            "labels": {labels.JOB: identity.job, labels.JOB_UID: identity.uid},
        },
        spec=ScaleSpec(
            job_ref=JobReference(name=identity.job, uid=identity.uid),
            roles=plan.roles,
            source=Source.BRAIN,
            policy=Policy.APPLY,
            reason=plan.reason,
            message=plan.message or None,
            algorithm=(
                Algorithm(name=algorithm.name, version=algorithm.version or None)
                if algorithm
                else None
            ),
        ),
    )
    written = scale.model_dump(by_alias=True, exclude_none=True, mode="json")
    return {"apiVersion": API_VERSION, "kind": SCALE_KIND, **written}


def _role(spec: ReplicaSpec) -> RoleDescription:
    resources = main_of_pod(spec.template).get("resources") or {}
    wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return RoleDescription(
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        fixed_replicas=spec.replicas or None,
        unit=spec.unit if isinstance(spec, WorkerSpec) else 1,
        spare_replicas=spec.spare_replicas,
        cpu=_stated(wanted.get("cpu")),
        memory=_stated(wanted.get("memory")),
    )


def _stated(amount: Any) -> Any:
    """A request that the Brain can plan with; None for one that says nothing, such as zero.

    A pod's template holds whatever the API server lets through: numbers, signs, long notations.
    """
    try:
        return amount if quantity.parse(amount) > 0 else None
    except ValueError:
        return None
