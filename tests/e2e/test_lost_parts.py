"""A job outlives its trainer, its Brain and its workers, and no sample is lost or repeated."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e.control_plane import ControlPlane, needs_kubectl, until
from tests.e2e.digits import digits_job, final_result

# On a quiet machine each takes about half a minute; the time-out leaves room for a busy one.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

EPOCHS = 4


def start_training(plane: ControlPlane, name: str, workers: int) -> None:
    """Apply a job of a fixed size and wait until it trains."""
    manifest = digits_job(name, f"--epochs={EPOCHS}")
    manifest["spec"]["replicaSpecs"]["worker"]["replicas"] = workers
    plane.apply(manifest)
    plane.wait_for(name, "Running", 30)
    until(lambda: "from step 0" in plane.kubectl("logs", f"{name}-worker-0-0", check=False), 40)
    time.sleep(2)


def assert_each_sample_exactly_once(result: dict[str, Any]) -> None:
    assert result["samples_seen"] == EPOCHS * 1437
    assert result["samples_lost"] == 0
    assert result["samples_repeated"] == 0


def test_the_trainer_is_killed(plane: ControlPlane) -> None:
    start_training(plane, "no-trainer", 1)
    plane.fault("kill_container", name="no-trainer-trainer-0-0")
    plane.wait_for("no-trainer", "Succeeded", 50)
    assert_each_sample_exactly_once(final_result(plane, "no-trainer"))
    job = plane.get("ej", "no-trainer")
    assert job["status"]["trainer"]["incarnation"] == 1
    plane.kubectl("delete", "ej", "no-trainer")


def test_the_brain_is_killed(own_plane: ControlPlane) -> None:
    start_training(own_plane, "no-brain", 1)
    own_plane.kill("brain")
    own_plane.wait_for("no-brain", "Succeeded", 50)
    assert_each_sample_exactly_once(final_result(own_plane, "no-brain"))
    uid = own_plane.get("ej", "no-brain")["metadata"]["uid"]
    until(lambda: own_plane.state.components["brain"].restarts == 1)
    until(lambda: own_plane.brain(f"/v1/jobs/{uid}")["phase"] == "Succeeded")


def test_a_worker_is_killed(plane: ControlPlane) -> None:
    start_training(plane, "no-worker", 2)
    plane.fault("kill_container", name="no-worker-worker-1-0")
    plane.wait_for("no-worker", "Succeeded", 55)
    assert_each_sample_exactly_once(final_result(plane, "no-worker"))
    ranks = plane.get("ej", "no-worker")["status"]["ranks"]["worker"]
    assert ranks["1"]["incarnation"] == 1
    plane.kubectl("delete", "ej", "no-worker")
