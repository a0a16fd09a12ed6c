"""The status of a pod from the states of its containers: phase, conditions, container statuses.

Pure. The rules are the real kubelet's (``getPhase``, ``GenerateContainersReadyCondition`` and so
on), since controllers decide by them: a pod whose only container waits for its next try after a
crash is Running, one whose first try has not begun is Pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock_cluster.requests import is_sidecar, quality_of_service

Json = Mapping[str, Any]
Document = dict[str, Any]

CONTAINER_ID_SCHEME = "process://"


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str = ""

    def as_json(self) -> Document:
        body = {"reason": self.reason} | ({"message": self.message} if self.message else {})
        return {"waiting": body}


@dataclass(frozen=True, slots=True)
class Active:
    started_at: str

    def as_json(self) -> Document:
        return {"running": {"startedAt": self.started_at}}


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int
    reason: str
    started_at: str
    finished_at: str
    container_id: str = ""
    message: str = ""
    signal: int = 0

    def as_json(self) -> Document:
        body: Document = {"exitCode": self.exit_code, "reason": self.reason}
        if self.signal:
            body["signal"] = self.signal
        if self.message:
            body["message"] = self.message
        body["startedAt"] = self.started_at
        body["finishedAt"] = self.finished_at
        if self.container_id:
            body["containerID"] = self.container_id
        return {"terminated": body}


State = Waiting | Active | Terminated


@dataclass(slots=True)
class ContainerRecord:
    """What is known of one container of a pod."""

    spec: Json
    is_init: bool = False
    state: State = field(default_factory=lambda: Waiting("ContainerCreating"))
    last: Terminated | None = None
    restarts: int = 0
    container_id: str = ""
    is_started: bool = False
    is_ready: bool = False
    was_started: bool = False
    """Of a sidecar: it has been started once, which is what later init containers wait for."""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def is_sidecar(self) -> bool:
        return self.is_init and is_sidecar(self.spec)

    @property
    def is_done(self) -> bool:
        """Of an init container: the next one may start."""
        if self.is_sidecar:
            return self.was_started
        return isinstance(self.state, Terminated) and self.state.exit_code == 0

    def as_json(self) -> Document:
        image = self.spec.get("image") or ""
        status: Document = {
            "name": self.name,
            "image": image,
            "imageID": f"penstock.dev/host@{image}" if self.container_id else "",
            "ready": self.is_ready if not self.is_init or self.is_sidecar else self.is_done,
            "started": self.is_started,
            "restartCount": self.restarts,
            "state": self.state.as_json(),
            "lastState": self.last.as_json() if self.last else {},
        }
        if self.container_id:
            status["containerID"] = self.container_id
        resources = self.spec.get("resources") or {}
        if self.container_id and resources.get("requests"):
            status["allocatedResources"] = resources["requests"]
            status["resources"] = {
                kind: resources[kind] for kind in ("limits", "requests") if resources.get(kind)
            }
        return status


@dataclass(slots=True)
class PodRecord:
    """Everything that the kubelet knows of a pod beyond its spec."""

    pod_ip: str
    host_ip: str
    start_time: str
    init_containers: list[ContainerRecord]
    containers: list[ContainerRecord]
    is_set_up: bool = False
    """Its volumes and network are ready, so containers may start."""
    is_terminating: bool = False
    """Containers that end now are not started again, whatever the restart policy."""
    verdict: tuple[str, str, str] | None = None
    """Phase, reason and message that were decided for the pod as a whole (Evicted and so on)."""

    @property
    def has_running_containers(self) -> bool:
        return any(
            isinstance(each.state, Active) for each in (*self.init_containers, *self.containers)
        )

    @property
    def settled_verdict(self) -> tuple[str, str, str] | None:
        """The verdict, told only once nothing runs: who reads Failed may reuse the resources."""
        return None if self.has_running_containers else self.verdict


def phase(restart_policy: str, record: PodRecord) -> str:
    """Pending, Running, Succeeded or Failed."""
    if record.settled_verdict is not None:
        return record.settled_verdict[0]
    for init in record.init_containers:
        if init.is_done:
            continue
        last = init.state if isinstance(init.state, Terminated) else init.last
        failed = last is not None and last.exit_code != 0
        if isinstance(init.state, Active):
            return "Pending"
        if record.is_terminating or (failed and restart_policy == "Never" and not init.is_sidecar):
            return "Failed"
        return "Pending"
    return _main_phase(restart_policy, record)


def _main_phase(restart_policy: str, record: PodRecord) -> str:
    waiting = running = stopped = succeeded = 0
    for container in record.containers:
        match container.state:
            case Active():
                running += 1
            case Terminated(exit_code=code):
                stopped += 1
                succeeded += code == 0
            case Waiting() if container.last is not None:
                stopped += 1
            case _:
                waiting += 1
    if waiting and not record.is_terminating:
        return "Pending"
    # A pod has not ended while a sidecar still runs.
    if running or any(isinstance(each.state, Active) for each in record.init_containers):
        return "Running"
    if waiting:
        return "Failed"
    if stopped and stopped == succeeded and (restart_policy != "Always" or record.is_terminating):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" or record.is_terminating else "Running"


def _condition(kind: str, holds: bool, reason: str = "", message: str = "") -> Document:
    condition: Document = {"type": kind, "status": "True" if holds else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _names(containers: Sequence[ContainerRecord]) -> str:
    return "[" + " ".join(container.name for container in containers) + "]"


def conditions(pod: Json, record: PodRecord, pod_phase: str) -> list[Document]:
    """The kubelet's conditions, without their transition times."""
    undone = [each for each in record.init_containers if not each.is_done]
    if not undone:
        reason = "PodCompleted" if pod_phase == "Succeeded" else ""
        initialized = _condition("Initialized", True, reason)
    else:
        message = f"containers with incomplete status: {_names(undone)}"
        initialized = _condition("Initialized", False, "ContainersNotInitialized", message)
    unready = [
        each
        for each in (*record.init_containers, *record.containers)
        if (not each.is_init or each.is_sidecar) and not each.is_ready
    ]
    if pod_phase in {"Succeeded", "Failed"}:
        ended = "PodCompleted" if pod_phase == "Succeeded" else "PodFailed"
        containers_ready = _condition("ContainersReady", False, ended)
    elif unready:
        message = f"containers with unready status: {_names(unready)}"
        containers_ready = _condition("ContainersReady", False, "ContainersNotReady", message)
    else:
        containers_ready = _condition("ContainersReady", True)
    ready = {**containers_ready, "type": "Ready"}
    if ready["status"] == "True":
        missing = _closed_gates(pod)
        if missing:
            message = f"the status of pod readiness gate {missing[0]!r} is not 'True'"
            ready = _condition("Ready", False, "ReadinessGatesNotReady", message)
    is_running = pod_phase not in {"Succeeded", "Failed"} and record.is_set_up
    return [
        _condition("PodReadyToStartContainers", is_running),
        initialized,
        ready,
        containers_ready,
    ]


def _closed_gates(pod: Json) -> list[str]:
    held = {
        each["type"]
        for each in (pod.get("status") or {}).get("conditions") or ()
        if each["status"] == "True"
    }
    gates = pod["spec"].get("readinessGates") or ()
    return [gate["conditionType"] for gate in gates if gate["conditionType"] not in held]


def status_patch(pod: Json, record: PodRecord, now: Callable[[], str]) -> Document:
    """The status as a strategic merge patch, with transition times kept where nothing changed."""
    pod_phase = phase(pod["spec"].get("restartPolicy") or "Always", record)
    old = {each["type"]: each for each in (pod.get("status") or {}).get("conditions") or ()}
    fresh = conditions(pod, record, pod_phase)
    generation = pod["metadata"].get("generation")
    for condition in fresh:
        before = old.get(condition["type"])
        unchanged = before is not None and before["status"] == condition["status"]
        time = before.get("lastTransitionTime") if before is not None and unchanged else None
        condition["lastTransitionTime"] = time or now()
        if before is not None:
            # A merge patch leaves what it does not name.
            for key in ("reason", "message"):
                if key in before and key not in condition:
                    condition[key] = None
        if generation is not None:
            condition["observedGeneration"] = generation
    status: Document = {
        "phase": pod_phase,
        "conditions": fresh,
        "hostIP": record.host_ip,
        "hostIPs": [{"ip": record.host_ip}],
        "startTime": record.start_time,
        "qosClass": quality_of_service(pod),
        "containerStatuses": [each.as_json() for each in record.containers],
    }
    if generation is not None:
        status["observedGeneration"] = generation
    if record.pod_ip:
        status["podIP"] = record.pod_ip
        status["podIPs"] = [{"ip": record.pod_ip}]
    if record.init_containers:
        status["initContainerStatuses"] = [each.as_json() for each in record.init_containers]
    if record.settled_verdict is not None:
        status["reason"], status["message"] = record.settled_verdict[1:]
    return status
