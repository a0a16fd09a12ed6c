"""What ``spec.gang`` adds to a job for a gang scheduler: its group, and the pods' words for it.

All or nothing at the start is a scheduler's promise, and Penstock has none of its own: it makes the
group that scheduler-plugins or Volcano know, or labels pods as Kueue has it, which makes its own.
The group is of the pods without which no training begins: the least number of training workers and
of parameter servers. A plan's further workers are scheduled with the group and wait for nobody.

Where the cluster does not know that kind of group its pods start one by one, as without a gang:
naming a scheduler that is not there would leave them pending for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.base.enums import GangScheduler, Role
from penstock.controller.reconcile.desired.targets import bounds
from penstock.controller.reconcile.model.actions import EnsurePodGroup
from penstock.controller.reconcile.model.objects import metadata
from penstock.controller.reconcile.model.observed import Job, Refusal, Settings
from penstock.crds import labels
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.gang import Gang

MEMBERS: Final = frozenset({Role.WORKER, Role.PS})

_MOST_PREFERRED: Final = 100
_PLUGINS_LABEL: Final = "scheduling.x-k8s.io/pod-group"
_VOLCANO_ANNOTATION: Final = "scheduling.k8s.io/group-name"
_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The group of one gang scheduler.

    Attributes:
        resource: the resource as `penstock.kube.api` knows it.
        api_version: of the group.
        scheduler: the name by which pods ask for the scheduler.
        install: what brings the group and the scheduler.
    """

    resource: str
    api_version: str
    scheduler: str
    install: str


_KINDS: Final = {
    GangScheduler.SCHEDULER_PLUGINS: _Kind(
        "podgroups.scheduling.x-k8s.io",
        "scheduling.x-k8s.io/v1alpha1",
        "scheduler-plugins-scheduler",
        "scheduler-plugins (https://scheduler-plugins.sigs.k8s.io)",
    ),
    GangScheduler.VOLCANO: _Kind(
        "podgroups.scheduling.volcano.sh",
        "scheduling.volcano.sh/v1beta1",
        "volcano",
        "Volcano (https://volcano.sh)",
    ),
}


def pod_group(job: Job, spec: ElasticJobSpec, settings: Settings) -> EnsurePodGroup | None:
    """The job's group as an object; None where it asks for none, or its scheduler makes its own."""
    kind = _KINDS.get(settings.gang_scheduler) if settings.gang_scheduler else None
    if spec.gang is None or kind is None:
        return None
    group: Json = {"minMember": sum(_least(spec, role) for role in MEMBERS)}
    if settings.gang_scheduler is GangScheduler.VOLCANO:
        if spec.gang.queue:
            group["queue"] = spec.gang.queue
    else:
        group["scheduleTimeoutSeconds"] = spec.gang.timeout_seconds
    manifest = {
        "apiVersion": kind.api_version,
        "kind": "PodGroup",
        "metadata": metadata(job, job.name),
        "spec": group,
    }
    return EnsurePodGroup(kind.resource, manifest)


def missing(spec: ElasticJobSpec, settings: Settings, refusal: Refusal | None) -> str:
    """Why the pods of a job that asks for a gang start one by one, and what to do; else ""."""
    if spec.gang is None:
        return ""
    if settings.gang_scheduler is None:
        return (
            "spec.gang: pods start one by one, as the controller knows of no gang scheduler; set"
            " controller.gangScheduler of the chart, --gang-scheduler of penstock controller"
        )
    kind = _KINDS.get(settings.gang_scheduler)
    if refusal is None or kind is None:
        return ""
    return (
        f"spec.gang: pods start one by one, as no PodGroup of {kind.api_version} can be made"
        f" ({refusal.message}); install {kind.install} or change the controller's gang scheduler"
    )


def join(
    pod: Json,
    job: Job,
    spec: ElasticJobSpec,
    role: Role,
    rank: int,
    scheduler: GangScheduler | None,
) -> None:
    """Make a pod one of its job's group, if it is of those that the group is made of.

    Args:
        pod: the pod, which is changed.
        job: its job.
        spec: the job's spec.
        role: the pod's role.
        rank: its rank within the role.
        scheduler: whose group it is; None: there is none, and what remains is where pods should be.
    """
    gang = spec.gang
    if gang is None or role not in MEMBERS:
        return
    if gang.topology_key:
        _prefer_together(pod["spec"], job, gang.topology_key)
    if scheduler is None:
        return
    tags, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    kind = _KINDS.get(scheduler)
    if kind is not None:
        pod["spec"].setdefault("schedulerName", kind.scheduler)
    match scheduler:
        case GangScheduler.SCHEDULER_PLUGINS:
            tags[_PLUGINS_LABEL] = job.name
        case GangScheduler.VOLCANO:
            notes[_VOLCANO_ANNOTATION] = job.name
        case GangScheduler.KUEUE:
            _queue(tags, notes, job, spec, gang, first=rank < _least(spec, role))


def _queue(
    tags: Json, notes: Json, job: Job, spec: ElasticJobSpec, gang: Gang, *, first: bool
) -> None:
    """Kueue takes no more pods into a group than it was told: the others queue by themselves."""
    if gang.queue:
        tags[_KUEUE_QUEUE] = gang.queue
    if first:
        tags[_KUEUE_GROUP] = job.name
        notes[_KUEUE_COUNT] = str(sum(_least(spec, role) for role in MEMBERS))


def _prefer_together(pod_spec: Json, job: Job, topology_key: str) -> None:
    """Add to what the template prefers that the job's pods be where one of them is."""
    affinity = pod_spec.setdefault("affinity", {}).setdefault("podAffinity", {})
    preferred = affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    term = {
        "labelSelector": {"matchLabels": {labels.JOB_UID: job.uid}},
        "topologyKey": topology_key,
    }
    preferred.append({"weight": _MOST_PREFERRED, "podAffinityTerm": term})


def _least(spec: ElasticJobSpec, role: Role) -> int:
    """How many pods of a role are there before the training begins."""
    declared = spec.replica_specs.by_role().get(role)
    if declared is None:
        return 0
    return declared.replicas or bounds(spec, role)[0]
