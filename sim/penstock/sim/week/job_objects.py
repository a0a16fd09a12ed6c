"""The API server and the controller's shell for one simulated job, round the real `reconcile`.

`pass_` gives `penstock.controller.reconcile` what it would observe in a cluster, and carries out
what it answers: patches of the job's status and of Scales go through the controller's own parsing,
and pods come back as `Pod` values read from the manifests that it wrote. What happens to pods on
machines is for others to do and to say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from penstock.base.enums import Objective, Role
from penstock.base.fields import write_time
from penstock.controller.reconcile import Observed, Settings, reconcile
from penstock.controller.reconcile.model.actions import (
    Action,
    AdoptScale,
    CheckTemplate,
    CreatePod,
    CreateScale,
    DeletePod,
    DeleteScale,
    EnsureObject,
    FetchLog,
    PatchJobStatus,
    PatchScaleStatus,
    RequeueAt,
    ResizePod,
)
from penstock.controller.reconcile.model.observed import ContainerState, Job, JobStatus, Pod, Scale
from penstock.controller.reconcile.model.parsing import (
    read_pod,
    read_scale,
    read_status,
)
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.sim.errors import SimulationError

BEGIN: Final = datetime(2022, 6, 6, tzinfo=UTC)
"""When the week begins: the paper's was in June 2022."""
SETTINGS: Final = Settings(trainer_image="trainer")
_MOST_PASSES: Final = 60
NAMESPACE: Final = "week"


def moment(seconds: float) -> datetime:
    """A time of the simulation as the controller sees it."""
    return BEGIN + timedelta(seconds=seconds)


def job_spec(milli_cpu: int, objective: Objective | None = None) -> ElasticJobSpec:
    """What a user of Penstock submits: roles without sizes, the most CPU of the job, and for what
    it is planned.
    """
    template = {"spec": {"containers": [{"name": "main", "image": "image", "command": ["train"]}]}}
    return ElasticJobSpec.model_validate(
        {
            "strategy": "ParameterServer",
            "optimize": "Auto",
            **({} if objective is None else {"objective": objective.value}),
            "resourceLimits": {"cpu": f"{milli_cpu}m"},
            "replicaSpecs": {
                "worker": {"template": template, "minReplicas": 1, "maxReplicas": 100},
                "ps": {"template": template, "minReplicas": 1, "maxReplicas": 32},
            },
        }
    )


def _avoided(manifest: Mapping[str, Any]) -> frozenset[str]:
    """The nodes that a pod's affinity leaves out; the templates of the jobs have none of theirs."""
    affinity = manifest["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return frozenset(
        node
        for term in required.get("nodeSelectorTerms", ())
        for one in term.get("matchFields", ())
        if (one["key"], one["operator"]) == ("metadata.name", "NotIn")
        for node in one["values"]
    )


class Machines(Protocol):
    """Who runs the job's pods."""

    def create(self, pod: Pod, avoids: frozenset[str]) -> None:
        """A pod was created, which must not have these nodes."""

    def delete(self, pod: Pod) -> None:
        """A pod is asked to go."""

    def resize(self, pod: Pod, milli_cpu: int, memory: int) -> bool:
        """Resize a pod where it is; False: its node has not that much."""


class JobObjects:
    """The objects of one job, as the API server holds them."""

    def __init__(self, name: str, spec: ElasticJobSpec, now: float, machines: Machines) -> None:
        self.job = Job(
            namespace=NAMESPACE,
            name=name,
            uid=f"uid-{name}",
            resource_version="1",
            generation=1,
            created=moment(now),
            spec=spec,
        )
        self.pods: dict[str, Pod] = {}
        self.scales: dict[str, Scale] = {}
        self.passes = 0
        self.requeue: datetime | None = None
        self._machines = machines
        self._version = 1
        self._reserved: set[tuple[str, int, int]] = set()
        self._templates: dict[str, Mapping[str, Any]] = {}
        self._objects_seen: datetime | None = None
        self._status_written: datetime | None = None
        self._logs: dict[str, str] = {}
        self._raw_scales: dict[str, dict[str, Any]] = {}

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of one of the job's conditions; empty where it has none."""
        found = self.job.status.conditions.get(kind)
        return ("", "") if found is None else (found.status, found.reason)

    def desired(self, role: Role) -> int:
        """How many pods of a role the controller wants now, by the status that it wrote."""
        counts = self.job.status.counts.get(role)
        return 0 if counts is None else counts.desired

    def change_pod(self, name: str, **fields: Any) -> Pod:
        """Something about a pod is different; gives it as it is then."""
        self._version += 1
        pod = dataclasses.replace(self.pods[name], resource_version=self._version, **fields)
        self.pods[name] = pod
        return pod

    def end_pod(self, name: str, now: float, code: int, reason: str = "") -> None:
        """All containers of a pod end with a code."""
        self.change_pod(
            name,
            phase="Failed" if code else "Succeeded",
            ready=False,
            containers=(
                ContainerState(name="main", exit_code=code, reason=reason, finished_at=moment(now)),
            ),
        )

    def write_scale(self, manifest: Mapping[str, Any], now: float) -> None:
        """A Scale is created; one of that name is the same Scale."""
        name = manifest["metadata"]["name"]
        if name in self._raw_scales:
            return
        self._version += 1
        raw = {
            **manifest,
            "metadata": {
                **manifest["metadata"],
                "uid": f"uid-{name}",
                "resourceVersion": str(self._version),
                "creationTimestamp": write_time(moment(now)),
            },
        }
        self._raw_scales[name] = raw
        self.scales[name] = read_scale(raw)

    def set_prepared(self, scale: Scale, now: float) -> None:
        """The trainer consents to a Scale that needs it."""
        raw = self._raw_scales[scale.name]
        stamp = write_time(moment(now))
        answer = {
            "status": "True",
            "reason": "ServersReady",
            "message": "the training is ready",
            "lastTransitionTime": stamp,
        }
        conditions = [
            {**one, **answer} if one["type"] == "Prepared" else one
            for one in raw["status"]["conditions"]
        ]
        self._put_scale({**raw, "status": {**raw["status"], "conditions": conditions}})

    def reconcile(self, now: float) -> None:
        """Passes of the controller until one answers nothing that changes anything."""
        self.requeue = None
        for _ in range(_MOST_PASSES):
            observed = Observed(
                job=self.job,
                scales=tuple(self.scales.values()),
                pods=tuple(self.pods.values()),
                reserved=frozenset(self._reserved),
                logs=self._logs,
                objects_seen_at=self._objects_seen,
                known_templates=self._templates,
                status_written_at=self._status_written,
            )
            self.passes += 1
            actions = reconcile(observed, SETTINGS, moment(now))
            changed = False
            for action in actions:
                changed = self._carry_out(action, now) or changed
            if not changed and (self.requeue is None or self.requeue > moment(now)):
                return
            self.requeue = None
        raise SimulationError(f"{self.job.name}: still changing after {_MOST_PASSES} passes")

    def _carry_out(self, action: Action, now: float) -> bool:
        """Do what an action says; whether the objects are different for it."""
        match action:
            case CreatePod():
                self._create_pod(action, now)
            case DeletePod():
                pod = self.pods.pop(action.name)
                self._machines.delete(pod)
            case ResizePod():
                self._resize(action)
            case CreateScale():
                self.write_scale(action.manifest, now)
            case AdoptScale():
                raw = self._raw_scales[action.name]
                owners = [dict(one) for one in action.owners]
                self._put_scale({**raw, "metadata": {**raw["metadata"], "ownerReferences": owners}})
            case PatchScaleStatus():
                raw = self._raw_scales[action.name]
                status = _merged(raw.get("status") or {}, action.patch["status"])
                self._put_scale({**raw, "status": status})
            case PatchJobStatus():
                status = _merged(self.job.status.raw, action.patch["status"])
                self._put_status(read_status(status), now)
                self._reserved |= action.reserves
            case DeleteScale():
                del self._raw_scales[action.name]
                del self.scales[action.name]
            case FetchLog():
                self._logs[action.uid] = ""
            case CheckTemplate():
                self._templates[action.role] = action.template
            case EnsureObject():
                self._objects_seen = moment(now)
                return False
            case RequeueAt():
                self.requeue = action.when
                return False
            case _:
                return False
        return True

    def _put_status(self, status: JobStatus, now: float) -> None:
        self._version += 1
        self._status_written = moment(now)
        self.job = dataclasses.replace(self.job, status=status, resource_version=str(self._version))

    def _put_scale(self, raw: dict[str, Any]) -> None:
        self._version += 1
        name = raw["metadata"]["name"]
        raw["metadata"] = {**raw["metadata"], "resourceVersion": str(self._version)}
        self._raw_scales[name] = raw
        self.scales[name] = read_scale(raw)

    def _create_pod(self, action: CreatePod, now: float) -> None:
        self._reserved.discard(action.reservation)
        self._version += 1
        manifest = action.manifest
        name = manifest["metadata"]["name"]
        pod = read_pod(
            {
                **manifest,
                "metadata": {
                    **manifest["metadata"],
                    "uid": f"uid-{name}",
                    "resourceVersion": str(self._version),
                    "creationTimestamp": write_time(moment(now)),
                },
            }
        )
        assert pod is not None
        self.pods[name] = pod
        self._machines.create(pod, _avoided(manifest))

    def _resize(self, action: ResizePod) -> None:
        pod = self.pods[action.name]
        cpu = action.cpu_milli if action.cpu_milli is not None else pod.cpu_milli or 0
        memory = action.memory_bytes if action.memory_bytes is not None else pod.memory_bytes or 0
        if self._machines.resize(pod, cpu, memory):
            self.change_pod(pod.name, cpu_milli=cpu, memory_bytes=memory)
        else:
            self.change_pod(pod.name, resize_infeasible=True)


def _merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396) carried out."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            before = result.get(key)
            result[key] = _merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[key] = value
    return result
