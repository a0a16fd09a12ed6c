"""A job that waits for data gets data workers; a GPU pod that needs their cores gets them."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.control_plane import ControlPlane, control_plane, needs_kubectl, until

Json = dict[str, Any]
IMAGE = "busybox:1.36"
LIVE = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
GPU = "nvidia.com/gpu"
IDEAL = 60.0
PER_CORE = 10.0

pytestmark = [needs_kubectl, pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    """Two nodes with accelerators, one of them about to have no CPU left for them, and no other."""
    monkeypatch.setenv("PENSTOCK_SCHEDULER_INTERVAL", "1")
    nodes = tmp_path / "nodes.yaml"
    node = {"cpu": "8", "memory": "16Gi", "accelerators": {GPU: 2}}
    nodes.write_text(
        yaml.safe_dump({"nodes": [{"name": "gpu-a", **node}, {"name": "gpu-b", **node}]})
    )
    assert os.environ["PENSTOCK_SCHEDULER_INTERVAL"] == "1"
    with control_plane(tmp_path, f"--nodes={nodes}") as running:
        yield running


def container(name: str, cpu: str, gpus: int = 0) -> Json:
    limits = {"cpu": cpu, "memory": "32Mi"} | ({GPU: gpus} if gpus else {})
    return {
        "name": name,
        "image": IMAGE,
        "command": ["sh", "-c", LIVE],
        "resources": {"limits": limits},
        "readinessProbe": {"exec": {"command": ["true"]}},
    }


def template(cpu: str, gpus: int = 0, *, most: int | None = None) -> Json:
    spec = {"terminationGracePeriodSeconds": 2, "containers": [container("main", cpu, gpus)]}
    return {"template": {"spec": spec}} | ({"maxReplicas": most} if most else {})


JOB: Json = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "hungry"},
    "spec": {
        "strategy": "Local",
        "optimize": "Manual",
        "trainer": {"template": {"spec": {"containers": [container("trainer", "100m")]}}},
        "replicaSpecs": {"worker": template("1", 2), "dataWorker": template("2")},
    },
}


def gpu_pod(name: str, cpu: str, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [container("main", cpu, 1)],
            **spec,
        },
    }


class Training:
    """Stands in for the trainer: reports what a job of so many data workers would."""

    def __init__(self, plane: ControlPlane, uid: str) -> None:
        self._plane = plane
        self._uid = uid
        self._call(
            "PUT",
            f"/v1/jobs/{uid}",
            {
                "name": "hungry",
                "namespace": "default",
                "strategy": "Local",
                "optimize": "Manual",
                "roles": {"worker": {}},
            },
        )

    def _call(self, method: str, path: str, body: Json) -> None:
        httpx.request(
            method,
            self._plane.brain_url + path,
            json=body,
            headers={"Authorization": f"Bearer {self._plane.token}"},
            timeout=10,
            trust_env=False,
        ).raise_for_status()

    def report(self) -> None:
        cores = sum(
            int(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])
            for pod in data_workers(self._plane)
            if ready(pod)
        )
        rate = min(IDEAL, PER_CORE * max(cores, 1))
        sample = {
            "time": time.time(),
            "step": 100,
            "steps_per_second": rate,
            "queue": {
                "enqueued_per_second": rate,
                "dequeued_per_second": rate,
                "ideal_per_second": IDEAL,
            },
        }
        self._call("POST", f"/v1/jobs/{self._uid}/samples", {"samples": [sample]})

    def until(self, condition: Callable[[], Any], seconds: float = 40.0) -> Any:
        """Train on until something comes true."""

        def step() -> Any:
            self.report()
            time.sleep(0.2)
            return condition()

        return until(step, seconds)


def data_workers(plane: ControlPlane) -> list[Json]:
    """The job's data workers that are there to stay."""
    items: list[Json] = plane.get("pods", "-l", "penstock.dev/role=data-worker")["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def nodes_of(plane: ControlPlane) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in data_workers(plane))


def started(plane: ControlPlane, name: str) -> bool:
    return plane.get("pod", name)["status"].get("phase") == "Running"


@pytest.mark.timeout(160)
def test_data_workers_come_one_by_one_and_leave_for_a_gpu_pod(plane: ControlPlane) -> None:
    plane.apply(JOB)
    uid = plane.get("ej", "hungry")["metadata"]["uid"]
    training = Training(plane, uid)
    until(lambda: plane.get("pods", "-l", "penstock.dev/role=worker")["items"])
    own = until(
        lambda: plane.get("pods", "-l", "penstock.dev/role=worker")["items"][0]["spec"].get(
            "nodeName"
        )
    )
    other = "gpu-b" if own == "gpu-a" else "gpu-a"

    # All accelerators of the training worker's node are in use, so its CPU would strand: the data
    # workers go there, of 2 cores, one more at a time, until three keep the queue full.
    training.until(lambda: len(data_workers(plane)) == 3 and all(map(ready, data_workers(plane))))
    assert nodes_of(plane) == [own] * 3
    scales = sorted(
        (one for one in plane.get("scales")["items"] if one["spec"]["source"] == "Scheduler"),
        key=lambda one: str(one["metadata"]["name"]),
    )
    counts = [one["spec"]["roles"]["dataWorker"]["replicas"] for one in scales]
    assert counts == sorted(counts)
    assert set(counts) == {1, 2, 3}
    assert {one["spec"]["reason"] for one in scales} <= {"DataStall", "Tuned"}
    placed = plane.kubectl("get", "events", "--field-selector=reason=Placed")
    assert "next best" in placed

    # What the planner decided is in the Brain's read models, too.
    shown = until(lambda: plane.brain("/v1/cluster/allocations")["items"], 20)
    assert {"Placed", "DataStall"} & {one["reason"] for one in shown}
    assert {one["name"] for one in plane.brain("/v1/cluster/nodes")["items"]} == {"gpu-a", "gpu-b"}

    # A GPU pod that fits beside nobody: both nodes lack the CPU. It may not preempt, so it is the
    # planner that makes room: on the other node, by nobody's loss, since that is where it fits.
    plane.apply(gpu_pod("first", "6"))
    until(lambda: started(plane, "first"))
    assert plane.get("pod", "first")["spec"]["nodeName"] == other
    plane.kubectl("delete", "pod", "first", "--wait=true")


@pytest.mark.timeout(160)
@pytest.mark.parametrize("preempts", [False, True])
def test_a_gpu_pod_that_needs_the_cores_gets_them(plane: ControlPlane, preempts: bool) -> None:
    plane.kubectl("cordon", "gpu-b")
    roles = {"worker": template("1"), "dataWorker": template("2", most=3)}
    plane.apply({**JOB, "spec": {**JOB["spec"], "replicaSpecs": roles}})
    training = Training(plane, plane.get("ej", "hungry")["metadata"]["uid"])
    training.until(lambda: len(data_workers(plane)) == 3 and all(map(ready, data_workers(plane))))
    assert nodes_of(plane) == ["gpu-a"] * 3

    policy = {} if preempts else {"preemptionPolicy": "Never"}
    plane.apply(gpu_pod("incoming", "3", **policy))
    training.until(lambda: started(plane, "incoming"))
    if not preempts:
        scales = plane.get("scales")["items"]
        [asked] = [one for one in scales if one["spec"].get("reason") == "RoomForAccelerators"]
        assert asked["spec"]["roles"]["dataWorker"]["replicas"] in (1, 2)
        assert "incoming" in asked["spec"]["message"]
        assert [one["metadata"]["name"] for one in data_workers(plane) if ready(one)]
