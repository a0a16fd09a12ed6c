"""What is done to a job's pods, from the plans of its roles: removed, resized, released, created.

Removal comes before creation, so that a job at the edge of its quota makes room first; whatever a
pod needs to exist, the job's own objects, is made before the pod.
"""

from __future__ import annotations

from typing import Final

from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, Role
from penstock.controller.reconcile.desired.gang import join, pod_group
from penstock.controller.reconcile.desired.pods import replica_pod, trainer_pod
from penstock.controller.reconcile.desired.targets import Target
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.actions import CreatePod, DeletePod, LiftGate, RecordEvent
from penstock.controller.reconcile.model.objects import job_objects
from penstock.controller.reconcile.model.observed import Pod
from penstock.controller.reconcile.model.share_group import group_joined, group_objects
from penstock.controller.reconcile.pass_context import PassContext
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.events import EventReason

_CONFIG_ERROR: Final = "CreateContainerConfigError"
"""What the kubelet says of a container whose Secret or ConfigMap is not there."""

_REMOVAL_STAGES: Final = (
    (Role.WORKER, *DATA_ROLES, Role.EVALUATOR),
    (Role.PS,),
    (TRAINER_ROLE,),
)
"""The order in which a whole job's pods go: the trainer last, so that it takes back the work."""


def staged_removal(context: PassContext, why: str) -> list[DeletePod]:
    """The next stage of the removal of all pods that still run."""
    for stage in _REMOVAL_STAGES:
        here = [pod for pod in context.observed.pods if pod.role in stage and not pod.ended]
        if here:
            return [DeletePod(pod.name, pod.uid, why) for pod in here if pod.live]
    return []


def change_pods(context: PassContext, spec: ElasticJobSpec, target: Target) -> None:
    """Carry out the plans of all roles, or the removal of all pods of a suspended job."""
    removed: list[str] = []
    if spec.suspend:
        context.actions.extend(staged_removal(context, "the job is suspended"))
    else:
        for plan in context.plans.values():
            context.actions.extend(DeletePod(pod.name, pod.uid, why) for pod, why in plan.remove)
            removed.extend(pod.label for pod, _ in plan.remove)
            context.actions.extend(plan.resize)
        _lift_gates(context)
        _create_pods(context, spec, target)
        _drop_old_dead(context)
    replaced = [text for plan in context.plans.values() for text in plan.replaced]
    if replaced:
        context.event(EventReason.PODS_REPLACED, replaced, "; ")
    if removed and not replaced:
        context.event(EventReason.PODS_REMOVED, removed, ", ")


def _lift_gates(context: PassContext) -> None:
    if context.observed.planner_alive:
        return
    gated = [pod for pod in context.observed.pods if pod.live and pod.gated]
    context.actions.extend(LiftGate(pod.name, pod.uid) for pod in gated)
    if gated:
        context.event(EventReason.GATES_LIFTED, [pod.label for pod in gated], ", ")


def _create_pods(context: PassContext, spec: ElasticJobSpec, target: Target) -> None:
    """Create what the plans say; before that a job knows whether its groups are there."""
    if needs_objects(context):
        group = group_objects(context.job)
        gang = pod_group(context.job, spec, context.settings)
        context.actions.extend(group)
        context.actions.extend(job_objects(context.job))
        if gang is not None:
            context.actions.append(gang)
        if (group or gang) and any(plan.create for plan in context.plans.values()):
            context.alarm.at(context.now)
            return
    _create(context, spec, target, group_joined(context.job, context.observed.refusals))


def _create(context: PassContext, spec: ElasticJobSpec, target: Target, group: str) -> None:
    scheduler = None if context.observed.gang_refusal else context.settings.gang_scheduler
    creations: list[CreatePod] = []
    counts: dict[str, int] = {}
    cache_socket = None if context.observed.cache_refused else context.settings.cache_socket
    for name, plan in context.plans.items():
        for rank, incarnation in plan.create:
            if name == TRAINER_ROLE:
                manifest = trainer_pod(context.job, spec, context.settings, incarnation, group)
            else:
                role = Role(name)
                own = target.role(role)
                manifest = replica_pod(
                    context.job,
                    spec,
                    role,
                    rank,
                    incarnation,
                    own.rank(rank),
                    spare=role is Role.WORKER and rank >= own.replicas,
                    gated=role in DATA_ROLES and context.observed.planner_alive,
                    group=group,
                    cache_socket=cache_socket,
                )
                if rank < own.replicas:  # spares come on top and go first
                    join(manifest, context.job, spec, role, rank, scheduler)
            creations.append(CreatePod(name, rank, incarnation, manifest))
            counts[name] = counts.get(name, 0) + 1
    context.actions.extend(creations)
    if creations:
        text = ", ".join(f"{count} {name}" for name, count in counts.items())
        first = context.job.status.start_time is None
        reason = EventReason.ACCEPTED if first else EventReason.PODS_CREATED
        context.actions.append(RecordEvent(reason, f"creates {text}"))


def needs_objects(context: PassContext) -> bool:
    """Whether to make sure of the job's own objects in this pass.

    When one is known to be gone; before pods are made; and while a container cannot start for what
    it refers to, since that may be the job's Secret. Not again soon after they were seen.
    """
    observed = context.observed
    if observed.objects_missing:
        return True
    seen = observed.objects_seen_at
    if any(plan.create for plan in context.plans.values()):
        return seen is None or seen + timing.OBJECTS_RECHECK <= context.now
    if not any(_misses_something(pod) for pod in observed.pods):
        return False
    due = context.now if seen is None else seen + timing.OBJECTS_DOUBT
    context.alarm.at(max(due, context.now + timing.OBJECTS_DOUBT))
    return due <= context.now


def _misses_something(pod: Pod) -> bool:
    return pod.live and any(one.waiting == _CONFIG_ERROR for one in pod.containers)


def _drop_old_dead(context: PassContext) -> None:
    """Ended pods that have been replaced stay for a while, for whoever wants their log."""
    for pod in context.observed.pods:
        plan = context.plans[pod.role]
        if not pod.ended or pod.deleting or plan.current.get(pod.rank) is pod:
            continue
        ended = max(
            (one.finished_at for one in pod.containers if one.finished_at), default=pod.created
        )
        end = ended + timing.DEAD_POD_RETENTION
        if end <= context.now:
            context.actions.append(DeletePod(pod.name, pod.uid, "it was replaced some time ago"))
        else:
            context.alarm.at(end)
