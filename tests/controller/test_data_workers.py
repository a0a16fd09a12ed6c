"""Data workers: gates, back-off without a budget, and the way back to local input."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controller.life import Life, template

Json = dict[str, Any]


@pytest.fixture
def fed(life: Life) -> Life:
    """A job with three data workers, made from the worker's template."""
    life.create_job(workers={"replicas": 1})
    life.create_scale("data", {"dataWorker": {"replicas": 3}}, source="Scheduler")
    life.settle()
    assert len(life.names("data-worker")) == 3
    return life


def test_none_by_default(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    assert life.names("data-worker") == []
    assert "dataWorkers" not in life.status


def test_they_are_made_from_the_workers_template_without_accelerators(life: Life) -> None:
    worker = template()
    container = worker["spec"]["containers"][0]
    container["resources"]["limits"] = {"nvidia.com/gpu": 1, "cpu": "1"}
    container["readinessProbe"] = {"exec": {"command": ["true"]}}
    life.create_job(workers={"replicas": 1, "template": worker})
    life.create_scale("data", {"dataWorker": {"replicas": 1, "resources": {"cpu": "4"}}})
    life.settle()
    [pod] = life.pods("data-worker")
    [made] = pod["spec"]["containers"]
    assert made["command"] == ["penstock", "data-worker"]
    assert made["resources"]["limits"] == {"cpu": "4"}
    assert made["readinessProbe"]["tcpSocket"] == {"port": 8481}, "its own, not the worker's"
    assert pod["spec"]["priorityClassName"] == "penstock-data"
    assert pod["spec"]["hostname"] == "data-worker-0"


def test_offload_never_means_none(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, input={"offload": "Never"})
    life.create_scale("data", {"dataWorker": {"replicas": 3}})
    life.settle()
    assert life.names("data-worker") == []
    assert life.scale_condition("data", "Failed") == ("True", "Invalid")


def test_gated_while_a_planner_lives(life: Life) -> None:
    life.planner_alive = True
    life.create_job(workers={"replicas": 1})
    life.create_scale("data", {"dataWorker": {"replicas": 2}})
    life.settle()
    assert [pod["spec"]["schedulingGates"] for pod in life.pods("data-worker")] == [
        [{"name": "penstock.dev/placement"}]
    ] * 2
    assert life.condition("Scaling") == ("False", "Settled"), "nobody waits for the planner"
    life.planner_alive = False
    life.settle()
    assert [pod["spec"]["schedulingGates"] for pod in life.pods("data-worker")] == [[], []]


def test_not_gated_without_a_planner(fed: Life) -> None:
    assert all("schedulingGates" not in pod["spec"] for pod in fed.pods("data-worker"))


def test_scale_in_takes_the_lowest_deletion_cost(fed: Life) -> None:
    for rank, cost in ((0, "10"), (1, "-5"), (2, "10")):

        def change(pod: Json, cost: str = cost) -> None:
            pod["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}

        fed.server.edit("pods", f"job-data-worker-{rank}-0", change)
    fed.server.advance(2)
    fed.create_scale("fewer", {"dataWorker": {"replicas": 2}})
    fed.settle()
    assert fed.names("data-worker") == ["job-data-worker-0-0", "job-data-worker-2-0"]
    fed.server.advance(2)
    fed.create_scale("more", {"dataWorker": {"replicas": 3}})
    fed.settle()
    assert fed.names("data-worker") == [
        "job-data-worker-0-0",
        "job-data-worker-1-1",
        "job-data-worker-2-0",
    ]


def test_a_failed_one_comes_back_after_a_pause(fed: Life) -> None:
    fed.end_pod("job-data-worker-1-0", 1)
    fed.settle()
    assert "job-data-worker-1-1" not in fed.names()
    fed.server.advance(6)
    fed.settle()
    assert "job-data-worker-1-1" in fed.names()
    assert fed.status["ranks"]["dataWorker"]["1"] == {"incarnation": 1, "restarts": 1}


def test_they_never_fail_the_job(fed: Life) -> None:
    fed.edit_spec(lambda spec: spec["failurePolicy"].update(maxRestarts=0, maxPreemptions=0))
    for round_ in range(4):
        fed.end_pod(f"job-data-worker-0-{round_}", 1)
        fed.server.advance(400)
        fed.settle()
    assert fed.condition("Failed")[0] == "False"
    assert len(fed.names("data-worker")) == 3


def test_three_failures_in_five_minutes_move_the_input_to_the_workers(fed: Life) -> None:
    for rank in range(3):
        fed.end_pod(f"job-data-worker-{rank}-0", 1)
    fed.settle()
    assert fed.names("data-worker") == []
    [name] = [one for one in fed.server.objects["scales"] if one != "data"]
    assert fed.server.objects["scales"][name]["spec"]["reason"] == "DataWorkersFailing"
    assert fed.condition("Running") == ("True", "InputRunsLocally")
    fed.server.advance(120)
    fed.create_scale("again", {"dataWorker": {"replicas": 1}}, source="Scheduler")
    fed.settle()
    assert len(fed.names("data-worker")) == 1
    assert fed.condition("Running") == ("True", "EnoughWorkers")


def test_three_failures_over_a_longer_time_do_not(fed: Life) -> None:
    for rank in range(3):
        fed.end_pod(f"job-data-worker-{rank}-0", 1)
        fed.server.advance(200)
        fed.settle()
    assert len(fed.names("data-worker")) == 3
    assert fed.condition("Running") == ("True", "EnoughWorkers")


def test_a_count_that_the_user_fixed_is_left_to_the_user(life: Life) -> None:
    life.create_job(
        workers={"replicas": 1}, roles={"dataWorker": {"replicas": 3, "template": template()}}
    )
    life.settle()
    for rank in range(3):
        life.end_pod(f"job-data-worker-{rank}-0", 1)
    life.settle()
    life.server.advance(30)
    life.settle()
    assert len(life.names("data-worker")) == 3
    assert not life.server.objects["scales"]


@pytest.mark.parametrize(("cpu", "processes"), [("4", "4"), ("2500m", "2"), ("500m", "1")])
def test_a_data_worker_of_several_cores_makes_batches_in_as_many_processes(
    life: Life, cpu: str, processes: str
) -> None:
    life.create_job(workers={"replicas": 1})
    sized = {"replicas": 1, "resources": {"cpu": cpu}}
    life.create_scale("data", {"dataWorker": sized})
    life.settle()
    [made] = life.pods("data-worker")[0]["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in made["env"]}
    assert told.get("PENSTOCK_DATA_PROCESSES") == processes
