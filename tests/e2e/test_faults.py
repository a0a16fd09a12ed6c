"""Whatever befalls a pod, a node or the API server, the controller brings the job to its end.

Each fault of the embedded cluster strikes one job with one worker, which only sleeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from penstock.crds import labels
from tests.e2e.control_plane import ControlPlane, control_plane, job_manifest, needs_kubectl, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

REPLACED = {
    "kill_container": {},
    "signal_container": {"signal": 15},
    "lose_processes": {},
    "evict_pod": {},
    "preempt_pod": {},
    "delete_pod": {"grace_seconds": 1},
}
"""Faults that end the worker's pod: a new incarnation ends the job."""

OUTLIVED: dict[str, dict[str, Any]] = {
    "slow_container": {"percent": 50},
    "partition_pod": {"seconds": 1},
    "fill_disk": {},
}
"""Faults that the running worker lives through."""

DELAYED: dict[str, dict[str, Any]] = {
    "delay_start": {"seconds": 1.0, "times": 1},
    "fail_image_pull": {"seconds": 2.0},
    "break_config": {"seconds": 2.0},
    "crash_at_start": {"times": 1},
    "never_ready": {"seconds": 2.0},
}
"""Faults that the worker's pod meets as it starts."""

TROUBLED: dict[str, dict[str, Any]] = {
    "stall_api": {"seconds": 1.0},
    "slow_api": {"delay_seconds": 0.05, "seconds": 3.0},
    "fail_api": {"rate": 0.3, "seconds": 3.0, "code": 503, "user_agent": "OpenAPI-Generator"},
    "conflict_writes": {"times": 3, "resource": "elasticjobs.penstock.dev"},
    "close_watches": {},
    "expire_watches": {},
    "skew_clock": {"seconds": 30.0},
}
"""Faults of the API server, under which the job is made and ends."""


@pytest.fixture(scope="module")
def mortal_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose nodes may be lost."""
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane, healed after each test."""
    yield plane
    plane.fault("clear")
    plane.kubectl("delete", "ej", "--all", "--wait=false")


def sleeper(name: str, seconds: float) -> dict[str, Any]:
    return job_manifest(name, ["sleep", str(seconds)], optimize="Manual")


def job_name(fault: str) -> str:
    return fault.replace("_", "-")


def worker(cluster: ControlPlane, job: str) -> dict[str, Any]:
    """The job's newest worker pod once it runs."""
    selector = f"{labels.JOB}={job},{labels.ROLE}=worker"

    def running() -> dict[str, Any] | None:
        pods = cluster.get("pods", selector=selector)["items"]
        return next((pod for pod in pods if pod["status"].get("phase") == "Running"), None)

    found: dict[str, Any] = until(running, 40)
    return found


def incarnation(cluster: ControlPlane, job: str) -> int:
    """How often the worker was replaced."""
    status = cluster.get("ej", job)["status"]
    return int(status.get("ranks", {}).get("worker", {}).get("0", {}).get("incarnation", 0))


@pytest.mark.parametrize("fault", sorted(REPLACED))
def test_a_worker_that_is_lost_is_replaced(cluster: ControlPlane, fault: str) -> None:
    job = job_name(fault)
    cluster.apply(sleeper(job, 3))
    cluster.fault(fault, name=worker(cluster, job)["metadata"]["name"], **REPLACED[fault])
    cluster.wait_for(job, "Succeeded", 40)
    assert incarnation(cluster, job) == 1


def test_a_worker_out_of_memory_comes_back_with_twice_as_much(cluster: ControlPlane) -> None:
    manifest = sleeper("out-of-memory", 3)
    template = manifest["spec"]["replicaSpecs"]["worker"]["template"]
    template["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    cluster.apply(manifest)
    cluster.fault("oom_kill_container", name=worker(cluster, "out-of-memory")["metadata"]["name"])
    cluster.wait_for("out-of-memory", "Succeeded", 40)
    pods = cluster.get("pods", selector=f"{labels.JOB}=out-of-memory,{labels.ROLE}=worker")["items"]
    limits = [pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in pods]
    assert "128Mi" in limits


def test_the_brain_hears_of_workers_out_of_memory_and_answers_once_it_is_more_than_one(
    cluster: ControlPlane,
) -> None:
    manifest = job_manifest(
        "short-of-memory",
        ["sleep", "600"],
        strategy="AllReduce",
        independentWorkers=True,
        worker={"minReplicas": 2, "maxReplicas": 2},
    )
    container = manifest["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"memory": "64Mi"}}
    cluster.apply(manifest)
    selector = f"{labels.JOB}=short-of-memory,{labels.ROLE}=worker,{labels.INCARNATION}=0"

    def both_run() -> list[str] | None:
        pods = cluster.get("pods", selector=selector)["items"]
        names = [one["metadata"]["name"] for one in pods if one["status"]["phase"] == "Running"]
        return names if len(names) == 2 else None

    for name in until(both_run, 40):
        cluster.fault("oom_kill_container", name=name)
    uid = cluster.get("ej", "short-of-memory")["metadata"]["uid"]

    def answers() -> list[str]:
        runs = cluster.brain(f"/v1/jobs/{uid}/runs")["items"]
        return [one["outcome"] for one in runs if one["algorithm"]["name"] == "oom_worker"]

    until(answers, 40)


@pytest.mark.parametrize("fault", sorted(OUTLIVED))
def test_a_worker_in_trouble_is_left_to_end(cluster: ControlPlane, fault: str) -> None:
    job = job_name(fault)
    cluster.apply(sleeper(job, 3))
    cluster.fault(fault, name=worker(cluster, job)["metadata"]["name"], **OUTLIVED[fault])
    cluster.wait_for(job, "Succeeded", 40)
    assert incarnation(cluster, job) == 0


def test_a_frozen_worker_goes_on_when_it_thaws(cluster: ControlPlane) -> None:
    cluster.apply(sleeper("frozen", 2))
    pod = worker(cluster, "frozen")["metadata"]["name"]
    cluster.fault("freeze_container", name=pod)
    cluster.fault("thaw_container", name=pod)
    cluster.wait_for("frozen", "Succeeded", 40)
    assert incarnation(cluster, "frozen") == 0


def test_a_partition_that_is_healed_is_forgotten(cluster: ControlPlane) -> None:
    cluster.apply(sleeper("healed", 2))
    pod = worker(cluster, "healed")["metadata"]["name"]
    cluster.fault("partition_pod", name=pod)
    cluster.fault("heal_pod", name=pod)
    cluster.wait_for("healed", "Succeeded", 40)
    assert incarnation(cluster, "healed") == 0


@pytest.mark.parametrize("fault", sorted(DELAYED))
def test_a_worker_that_cannot_start_at_once_starts_later(cluster: ControlPlane, fault: str) -> None:
    job = job_name(fault)
    tags = {labels.JOB: job, labels.ROLE: "worker"}
    cluster.fault(fault, labels=tags, **DELAYED[fault])
    cluster.apply(sleeper(job, 1))
    cluster.wait_for(job, "Succeeded", 50)
    assert incarnation(cluster, job) == (1 if fault == "crash_at_start" else 0)


@pytest.mark.parametrize("fault", sorted(TROUBLED))
def test_an_api_server_in_trouble_delays_the_job(cluster: ControlPlane, fault: str) -> None:
    job = job_name(fault)
    cluster.apply(sleeper(job, 1))
    cluster.fault(fault, **TROUBLED[fault])

    def succeeded() -> bool:
        with suppress(httpx.HTTPError):  # the API server is in trouble
            conditions = cluster.get("ej", job).get("status", {}).get("conditions", [])
            return any((one["type"], one["status"]) == ("Succeeded", "True") for one in conditions)
        return False

    until(succeeded, 50)


def test_events_that_never_came_are_made_up_for(cluster: ControlPlane) -> None:
    cluster.fault("drop_watch_events", resource="pods", seconds=3.0)
    cluster.apply(sleeper("unseen", 1))
    until(lambda: cluster.get("pods", selector=f"{labels.JOB}=unseen")["items"])
    cluster.fault("clear")
    cluster.fault("close_watches", resource="pods")
    cluster.wait_for("unseen", "Succeeded", 50)


def test_a_job_outlives_its_node(mortal_plane: ControlPlane) -> None:
    mortal_plane.apply(sleeper("moved", 4))
    node = worker(mortal_plane, "moved")["spec"]["nodeName"]
    mortal_plane.fault("cordon_node", name=node)
    mortal_plane.fault("lose_node", name=node)
    mortal_plane.fault("return_node", name=node)
    mortal_plane.wait_for("moved", "Succeeded", 45)
    assert incarnation(mortal_plane, "moved") == 1


def test_a_job_outlives_the_end_of_its_node(mortal_plane: ControlPlane) -> None:
    mortal_plane.apply(sleeper("bereft", 4))
    node = worker(mortal_plane, "bereft")["spec"]["nodeName"]
    mortal_plane.fault("remove_node", name=node)
    mortal_plane.wait_for("bereft", "Succeeded", 50)
