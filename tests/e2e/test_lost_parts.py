"""A job outlives its trainer, its Brain and its workers, and no sample is lost or repeated."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.elastic.steps import read_steps
from tests.e2e.control_plane import ControlPlane, needs_kubectl, until
from tests.e2e.digits import SLEEPING_SAMPLES, final_result, sleeping_job

# On a quiet machine each takes about half a minute; the time-out leaves room for a busy one.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

EPOCHS = 4
"""Of 25 steps that sleep for 0.4 s, divided among the workers, until the job is to hurry."""


def start_training(plane: ControlPlane, name: str, workers: int, folder: Path) -> None:
    """Apply a job of a fixed size and wait until it trains."""
    manifest = sleeping_job(name, folder, EPOCHS)
    manifest["spec"]["replicaSpecs"]["worker"]["replicas"] = workers
    plane.apply(manifest)
    plane.wait_for(name, "Running", 30)
    until(lambda: len(read_steps(folder.glob("steps-*.jsonl"))) >= 3, 40)


def end_training(plane: ControlPlane, name: str, folder: Path) -> None:
    """Let it end: each sample counts once."""
    (folder / "hurry").touch()
    plane.wait_for(name, "Succeeded", 50)
    result = final_result(plane, name)
    assert result["samples_seen"] == EPOCHS * SLEEPING_SAMPLES
    assert result["samples_lost"] == 0
    assert result["samples_repeated"] == 0


def incarnation(plane: ControlPlane, name: str, role: str) -> Any:
    """Of the trainer or the worker of rank 1, as the job's status has it."""
    status = plane.get("ej", name)["status"]
    ranks = status.get("ranks", {}).get("worker", {})
    one = status.get("trainer") if role == "trainer" else ranks.get("1")
    return (one or {}).get("incarnation")


def test_the_trainer_is_killed(plane: ControlPlane, tmp_path: Path) -> None:
    start_training(plane, "no-trainer", 1, tmp_path)
    plane.fault("kill_container", name="no-trainer-trainer-0-0")
    until(lambda: incarnation(plane, "no-trainer", "trainer") == 1)
    end_training(plane, "no-trainer", tmp_path)
    assert incarnation(plane, "no-trainer", "trainer") == 1
    plane.kubectl("delete", "ej", "no-trainer")


def test_the_brain_is_killed(plane: ControlPlane, tmp_path: Path) -> None:
    restarts = plane.state.components["brain"].restarts
    start_training(plane, "no-brain", 1, tmp_path)
    uid = plane.get("ej", "no-brain")["metadata"]["uid"]
    plane.kill("brain")
    end_training(plane, "no-brain", tmp_path)

    def phase() -> Any:
        with suppress(httpx.TransportError):  # it is about to answer
            return plane.brain(f"/v1/jobs/{uid}")["phase"]
        return None

    until(lambda: plane.state.components["brain"].restarts == restarts + 1)
    until(lambda: phase() == "Succeeded")
    plane.kubectl("delete", "ej", "no-brain")


def test_a_worker_is_killed(plane: ControlPlane, tmp_path: Path) -> None:
    start_training(plane, "no-worker", 2, tmp_path)
    plane.fault("kill_container", name="no-worker-worker-1-0")
    until(lambda: incarnation(plane, "no-worker", "worker") == 1)
    end_training(plane, "no-worker", tmp_path)
    assert incarnation(plane, "no-worker", "worker") == 1
    plane.kubectl("delete", "ej", "no-worker")
