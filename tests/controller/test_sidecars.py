"""Containers that run on beside the training: they hold no job open, and fail none when they go."""

from __future__ import annotations

import pytest

from tests.controller.life import Json, Life, container

TEMPLATE: Json = {
    "spec": {"containers": [{"name": "shipper", "image": "shipper"}, container()]},
}


def end_training(life: Life, name: str, code: int, reason: str = "Completed") -> None:
    """The main container of a pod ends; the other one goes on."""
    life.run_pod(name)

    def change(pod: Json) -> None:
        ended = {"exitCode": code, "reason": reason, "finishedAt": life.server.stamp()}
        status = pod["status"]
        status["conditions"] = [
            {"type": "Ready", "status": "False", "lastTransitionTime": life.server.stamp()}
        ]
        status["containerStatuses"] = [
            {"name": "main", "state": {"terminated": ended}},
            {"name": "shipper", "state": {"running": {}}},
        ]

    life.server.edit("pods", name, change)


def test_a_job_ends_when_its_training_has_and_its_pods_go(life: Life) -> None:
    life.create_job(workers={"replicas": 2, "template": TEMPLATE})
    life.settle()
    end_training(life, "job-worker-0-0", 0)
    life.settle()
    assert life.condition("Succeeded") == ("False", "NotFinished")
    assert life.names("worker") == ["job-worker-0-0", "job-worker-1-0"]
    counts = life.status["replicas"]["worker"]
    assert (counts["succeeded"], counts["created"], counts["ready"]) == (1, 1, 1)
    end_training(life, "job-worker-1-0", 0)
    life.settle()
    assert life.condition("Succeeded") == ("True", "AllRanksSucceeded")
    assert life.names() == []
    assert life.status["replicas"]["worker"]["succeeded"] == 2


def test_a_training_that_failed_is_replaced_though_its_sidecar_runs(life: Life) -> None:
    life.create_job(workers={"replicas": 1, "template": TEMPLATE})
    life.settle()
    end_training(life, "job-worker-0-0", 1, "Error")
    life.settle()
    assert life.names("worker") == ["job-worker-0-1"]
    assert life.status["ranks"]["worker"]["0"]["restarts"] == 1


@pytest.mark.parametrize("code", [0, 1])
def test_the_end_of_the_data_waits_for_no_sidecar(life: Life, code: int) -> None:
    life.create_job(workers={"replicas": 1, "template": TEMPLATE})
    life.settle()
    end_training(life, "job-worker-0-0", code, "Error" if code else "Completed")
    life.end_pod("job-trainer-0-0", 0)
    life.deliver()
    life.one_pass()
    assert life.condition("Succeeded" if code == 0 else "Failed")[0] == "True"
    life.settle()
    assert life.names() == []


def test_a_trainer_with_a_sidecar_ends_its_job(life: Life) -> None:
    overlay = {"spec": {"containers": [{"name": "main", "image": "shipper"}]}}
    life.create_job(workers={"replicas": 1}, trainer={"template": overlay})
    life.settle()
    [trainer] = life.pods("trainer")
    assert trainer["metadata"]["annotations"]["penstock.dev/main-container"] == "trainer"
    life.end_pod("job-worker-0-0", 0)

    def change(pod: Json) -> None:
        ended = {"exitCode": 0, "finishedAt": life.server.stamp()}
        pod["status"]["containerStatuses"] = [
            {"name": "trainer", "state": {"terminated": ended}},
            {"name": "main", "state": {"running": {}}},
        ]

    life.server.edit("pods", "job-trainer-0-0", change)
    life.settle()
    assert life.condition("Succeeded")[0] == "True"
    assert life.names() == []
