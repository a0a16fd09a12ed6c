"""A job's life in a test: a controller on a `FakeServer`, and everybody else in the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from penstock.controller.metrics import Metrics
from penstock.controller.owned_objects import OwnedObjects
from penstock.controller.reconcile import Settings
from penstock.controller.reconciler import Reconciler
from penstock.controller.store import Store
from penstock.crds.elasticjob import ElasticJob
from penstock.kube.api import Api
from penstock.kube.errors import ApiError
from tests.controller.fake_server import CrashError, FakeApi, FakeServer, copied

Json = dict[str, Any]
KEY = ("ns", "job")
SETTINGS = Settings(trainer_image="trainer")


def container(memory: str = "1Gi", cpu: str = "1") -> Json:
    return {
        "name": "main",
        "image": "image",
        "command": ["train"],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }


def template(memory: str = "1Gi", cpu: str = "1") -> Json:
    return {"spec": {"containers": [container(memory, cpu)]}}


def with_accelerators(count: int, kind: str = "nvidia.com/gpu") -> Json:
    """A template that asks for accelerators beside the usual."""
    found = template()
    found["spec"]["containers"][0]["resources"]["limits"] = {kind: count, "cpu": "1"}
    return found


def job(name: str = "job", workers: Json | None = None, **spec: Any) -> Json:
    """An ElasticJob with all defaults filled in, as an API server stores it."""
    roles = {"worker": {"template": template(), **(workers or {})}, **spec.pop("roles", {})}
    raw = {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "strategy": "AllReduce",
            "optimize": "Manual",
            **spec,
            "replicaSpecs": roles,
        },
    }
    filled = ElasticJob.model_validate(raw).model_dump(
        by_alias=True, mode="json", exclude_none=True
    )
    return {**raw, "spec": filled["spec"]}


def scale(name: str, uid: str, roles: Json, **spec: Any) -> Json:
    """A Scale with all defaults filled in."""
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Scale",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "jobRef": {"name": "job", "uid": uid},
            "roles": roles,
            "source": "User",
            "policy": "Apply",
            "dryRun": False,
            "ttlSecondsAfterFinished": 3600,
            **spec,
        },
    }


def node_for(pod: Json) -> str:
    """The first node that a pod's affinity allows."""
    required = (
        ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    avoided = {
        node for term in required for one in term.get("matchFields", ()) for node in one["values"]
    }
    return next(node for node in ("node-1", "node-2") if node not in avoided)


class Life:
    """A controller that can crash, and the world round it."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.server = FakeServer()
        self.settings = settings
        self.loop = asyncio.new_event_loop()
        self.fault: Callable[[int], str | None] = lambda _: None
        self.planner_alive = False
        self.crashes = 0
        self._metrics = Metrics()
        self.restart()

    def _fault_of_call(self, number: int) -> str | None:
        return self.fault(number)

    def close(self) -> None:
        self.loop.close()

    # The controller

    def restart(self) -> None:
        """A new process: it remembers nothing and reads complete lists."""
        api = cast("Api", FakeApi(self.server, self._fault_of_call))
        self.store = Store(lambda _: None)
        self.reconciler = Reconciler(
            api,
            self.store,
            self.settings,
            self._metrics,
            self.server.clock,
            "test",
        )
        self.relist()

    def relist(self) -> None:
        objects, version = copied(self.server.objects), self.server.version
        self.store.replace(
            objects["elasticjobs"].values(), version, objects["scales"].values(), version
        )
        self.store.replace_pods(objects["pods"].values(), version)
        self.server.pending.clear()

    def deliver(self, count: int | None = None) -> None:
        """Show the controller the next events of its watches."""
        events = self.server.pending[:count]
        del self.server.pending[: len(events)]
        for event in events:
            self.show(event.resource, event.kind, event.object)

    def show(self, resource: str, kind: str, found: Json) -> None:
        metadata = found["metadata"]
        if resource == "pods":
            self.store.watched_pod(kind, found)
        elif resource == "elasticjobs":
            if kind == "DELETED":
                self.store.drop_job((metadata["namespace"], metadata["name"]), metadata["uid"])
            else:
                self.store.put_job(found)
        elif kind == "DELETED":
            key = (metadata["namespace"], found["spec"]["jobRef"]["name"])
            self.store.drop_scale(key, metadata["name"], metadata["uid"])
        else:
            self.store.put_scale(found)

    def one_pass(self, key: tuple[str, str] = KEY) -> bool:
        """One pass; returns whether it ended without an error. A crash restarts the controller."""
        try:
            self.loop.run_until_complete(
                self.reconciler.reconcile(key, planner_alive=self.planner_alive)
            )
        except ApiError:
            return False
        except CrashError:
            self.crashes += 1
            self.restart()
            return False
        return True

    def find_missing_objects(self) -> None:
        """What the operator does now and then."""
        begun = self.server.clock()
        jobs = self.reconciler.jobs_with_objects()
        found = OwnedObjects(cast("Api", FakeApi(self.server, lambda _: None)), None)
        for key in self.loop.run_until_complete(found.find_missing(jobs)):
            self.reconciler.objects_missing(jobs[key], begun)

    def settle(self, limit: int = 60, kubelet: bool = True) -> None:
        """Deliver and reconcile until nothing changes any more; fails if that never comes."""
        for _ in range(limit):
            before = self.server.version
            self.deliver()
            self.one_pass()
            if kubelet:
                self.finish_deletions()
                self.run_pods()
            if self.server.version == before and not self.server.pending:
                self.server.advance(1.5)  # past the interval between writes of counts
                self.one_pass()
                if self.server.version == before:
                    return
            self.server.advance(0.1)
        raise AssertionError(f"still changing after {limit} passes: {self.server.calls[-12:]}")

    # Everybody else

    def create_job(self, **arguments: Any) -> Json:
        return self.server.put("elasticjobs", job(**arguments))

    def create_scale(self, name: str, roles: Json, **spec: Any) -> Json:
        uid = self.server.objects["elasticjobs"]["job"]["metadata"]["uid"]
        return self.server.put("scales", scale(name, uid, roles, **spec))

    def edit_spec(self, change: Callable[[Json], None], name: str = "job") -> None:
        self.server.edit("elasticjobs", name, lambda found: change(found["spec"]))

    def pods(self, role: str | None = None, *, live: bool = True) -> list[Json]:
        found = [
            pod
            for pod in self.server.objects["pods"].values()
            if role in {None, pod["metadata"]["labels"]["penstock.dev/role"]}
        ]
        if live:
            found = [
                pod
                for pod in found
                if pod["status"]["phase"] not in {"Succeeded", "Failed"}
                and "deletionTimestamp" not in pod["metadata"]
            ]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    def names(self, role: str | None = None, *, live: bool = True) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(role, live=live)]

    def run_pod(self, name: str, *, ready: bool = True) -> None:
        """Bind a pod to a node that it may go to, and start its containers."""

        def change(pod: Json) -> None:
            if pod["spec"].get("schedulingGates") or pod["status"]["phase"] != "Pending":
                return
            pod["spec"]["nodeName"] = node_for(pod)
            pod["status"] = {
                "phase": "Running",
                "startTime": self.server.stamp(),
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True" if ready else "False",
                        "lastTransitionTime": self.server.stamp(),
                    }
                ],
                "containerStatuses": [
                    {"name": one["name"], "state": {"running": {}}}
                    for one in pod["spec"]["containers"]
                ],
            }

        self.server.edit("pods", name, change)

    def run_pods(self) -> None:
        for pod in self.pods():
            self.run_pod(pod["metadata"]["name"])

    def end_pod(
        self,
        name: str,
        code: int,
        reason: str = "",
        *,
        pod_reason: str = "",
        message: str = "",
    ) -> None:
        """All containers of a pod end with a code."""
        self.run_pod(name)

        def change(pod: Json) -> None:
            status = pod["status"]
            if status["phase"] in {"Succeeded", "Failed"}:
                return
            status["phase"] = "Succeeded" if code == 0 else "Failed"
            if pod_reason:
                status["reason"] = pod_reason
            ended = {"exitCode": code, "reason": reason, "finishedAt": self.server.stamp()}
            if message:
                ended["message"] = message
            status["conditions"] = [
                {
                    "type": "Ready",
                    "status": "False",
                    "lastTransitionTime": self.server.stamp(),
                }
            ]
            status["containerStatuses"] = [
                {"name": one["name"], "state": {"terminated": dict(ended)}}
                for one in pod["spec"]["containers"]
            ]

        self.server.edit("pods", name, change)

    def set_waiting(self, name: str, reason: str) -> None:
        """A container of a bound pod does not start."""

        def change(pod: Json) -> None:
            pod["spec"]["nodeName"] = node_for(pod)
            pod["status"] = {
                "phase": "Pending",
                "startTime": self.server.stamp(),
                "containerStatuses": [
                    {"name": "main", "state": {"waiting": {"reason": reason, "message": "no"}}}
                ],
            }

        self.server.edit("pods", name, change)

    def set_unschedulable(self, name: str) -> None:
        def change(pod: Json) -> None:
            pod["status"] = {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient cpu.",
                        "lastTransitionTime": self.server.stamp(),
                    }
                ],
            }

        self.server.edit("pods", name, change)

    def finish_deletions(self) -> None:
        """The kubelet: pods that were asked to go are gone."""
        for name, pod in list(self.server.objects["pods"].items()):
            if "deletionTimestamp" in pod["metadata"]:
                self.server.remove("pods", name)

    # Looking

    @property
    def job(self) -> Json:
        return self.server.objects["elasticjobs"]["job"]

    @property
    def status(self) -> Json:
        found: Json = self.job.get("status") or {}
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        """(status, reason) of one of the job's conditions."""
        for found in self.status.get("conditions") or ():
            if found["type"] == kind:
                return found["status"], found["reason"]
        return "", ""

    def message(self, kind: str) -> str:
        found = {one["type"]: one["message"] for one in self.status["conditions"]}
        return str(found[kind])

    def scale_condition(self, name: str, kind: str) -> tuple[str, str]:
        status = self.server.objects["scales"][name].get("status") or {}
        for found in status.get("conditions") or ():
            if found["type"] == kind:
                return found["status"], found["reason"]
        return "", ""

    def events(self) -> list[str]:
        return [one["reason"] for one in self.server.objects["events"].values()]
