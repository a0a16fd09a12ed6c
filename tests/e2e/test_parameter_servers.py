"""A job with parameter servers from ``kubectl apply`` to its end, whatever becomes of its servers.

What it trains counts (`tests.e2e.counting`): a batch lost or applied twice, by any server, shows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.crds.environment import CHECKPOINT_DIR, STEP_LOG
from tests.e2e.control_plane import ROOT, ControlPlane, Json, needs_kubectl, until
from tests.e2e.digits import final_result

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

SAMPLES, BATCH, EPOCHS = 2000, 10, 10


def counting_job(
    name: str, hurry: Path, *, workers: int = 3, servers: int = 2, step_log: Path | None = None
) -> Json:
    program = [
        sys.executable,
        "-m",
        "tests.e2e.counting",
        f"--samples={SAMPLES}",
        f"--batch-size={BATCH}",
        f"--epochs={EPOCHS}",
        "--batch-seconds=0.06",
        f"--hurry={hurry}",
    ]
    env = [{"name": CHECKPOINT_DIR, "value": "/checkpoints"}]
    if step_log is not None:
        env.append({"name": STEP_LOG, "value": str(step_log)})
    worker = {
        "name": "main",
        "image": "penstock/examples",
        "command": ["penstock", "run", "--", *program],
        "workingDir": str(ROOT),
        "env": env,
        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
    }
    claim = {"name": "checkpoints", "persistentVolumeClaim": {"claimName": f"{name}-checkpoints"}}
    server = {"name": "main", "image": "penstock/examples"}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {
            "strategy": "ParameterServer",
            "optimize": "Manual",
            "replicaSpecs": {
                "worker": {
                    "minReplicas": workers,
                    "template": {"spec": {"containers": [worker], "volumes": [claim]}},
                },
                "ps": {"minReplicas": servers, "template": {"spec": {"containers": [server]}}},
            },
        },
    }


class Job:
    """A job on a control plane, and what is done to it."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        self._scales = 0

    def scale(self, **server: Any) -> str:
        """Write a Scale for the servers."""
        self._scales += 1
        name = f"{self.name}-{self._scales}"
        job = self.plane.get("ej", self.name)
        self.plane.apply(
            {
                "apiVersion": "penstock.dev/v1alpha1",
                "kind": "Scale",
                "metadata": {"name": name},
                "spec": {
                    "jobRef": {"name": self.name, "uid": job["metadata"]["uid"]},
                    "source": "User",
                    "reason": "Test",
                    "message": "a test",
                    "roles": {"ps": server},
                },
            }
        )
        return name

    def wait_for_scale(self, name: str) -> None:
        """Until it is applied: its pods are Ready, and those that go are gone."""
        self.plane.kubectl(
            "wait", "--for=condition=Applied", f"scales.penstock.dev/{name}", "--timeout=360s"
        )

    def servers(self) -> Sequence[str]:
        """The names of the servers' pods that serve."""
        selector = f"penstock.dev/job={self.name},penstock.dev/role=ps"
        return sorted(
            pod["metadata"]["name"]
            for pod in self.plane.get("pods", selector=selector)["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in pod["status"].get("conditions", ())
            )
        )

    def wait_for_servers(self, *names: str, seconds: float = 60) -> None:
        wanted = [f"{self.name}-ps-{name}" for name in names]
        until(lambda: list(self.servers()) == wanted, seconds)


def claim(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-checkpoints"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def finished(plane: ControlPlane, name: str) -> None:
    """The job succeeds, its rows are right, and nothing of it is left running."""
    plane.wait_for(name, "Succeeded", 40)
    result = final_result(plane, name)
    assert result["wrong_rows"] == 0
    assert result["samples_lost"] == 0
    assert result["samples_repeated"] == 0
    assert result["batches_counted"] == EPOCHS * SAMPLES / BATCH

    def left() -> list[str]:
        pods = plane.get("pods", selector=f"penstock.dev/job={name}")["items"]
        return [
            pod["metadata"]["name"]
            for pod in pods
            if pod["status"]["phase"] not in {"Succeeded", "Failed"}
        ]

    until(lambda: not left(), 40)
    plane.kubectl("delete", "ej", name)


def test_servers_come_and_go_while_it_trains(plane: ControlPlane, tmp_path: Path) -> None:
    plane.apply(claim("scaled"))
    plane.apply(counting_job("scaled", tmp_path / "hurry"))
    job = Job(plane, "scaled")
    job.wait_for_servers("0-0", "1-0")
    job.wait_for_scale(job.scale(replicas=4))
    job.wait_for_servers("0-0", "1-0", "2-0", "3-0")
    job.wait_for_scale(job.scale(replicas=3))
    job.wait_for_servers("0-0", "1-0", "2-0")
    (tmp_path / "hurry").touch()
    finished(plane, "scaled")


def test_a_server_is_replaced_while_it_trains(plane: ControlPlane, tmp_path: Path) -> None:
    plane.apply(claim("replaced"))
    plane.apply(counting_job("replaced", tmp_path / "hurry"))
    job = Job(plane, "replaced")
    job.wait_for_servers("0-0", "1-0")
    job.wait_for_scale(job.scale(ranks={"1": {"minIncarnation": 1}}))
    job.wait_for_servers("0-0", "1-1")
    (tmp_path / "hurry").touch()
    finished(plane, "replaced")


def test_servers_are_lost_while_it_trains(plane: ControlPlane, tmp_path: Path) -> None:
    plane.apply(claim("lost"))
    plane.apply(counting_job("lost", tmp_path / "hurry"))
    job = Job(plane, "lost")
    job.wait_for_servers("0-0", "1-0")
    plane.fault("kill_container", name="lost-ps-0-0")
    job.wait_for_servers("0-1", "1-0")
    plane.kubectl("delete", "pod", "lost-ps-1-0", "--wait=false")
    job.wait_for_servers("0-1", "1-1")
    (tmp_path / "hurry").touch()
    finished(plane, "lost")


def test_a_suspended_job_is_saved_goes_at_once_and_resumes_where_it_was(
    plane: ControlPlane, tmp_path: Path
) -> None:
    steps = tmp_path / "steps"

    def batches() -> list[int]:
        return [
            json.loads(line)["step"]
            for path in steps.glob("steps-*.jsonl")
            for line in path.read_text().splitlines()
        ]

    def suspend(suspended: bool) -> None:
        spec = json.dumps({"spec": {"suspend": suspended}})
        plane.kubectl("patch", "ej", "paused", "--type=merge", "-p", spec)

    plane.apply(claim("paused"))
    plane.apply(counting_job("paused", tmp_path / "hurry", step_log=steps))
    until(lambda: len(batches()) >= 100, 60)
    began = time.monotonic()
    suspend(True)
    plane.wait_for("paused", "Suspended", 20)
    assert time.monotonic() - began < 15, "servers did not wait out their grace period"
    trained = len(batches())
    suspend(False)
    until(lambda: len(batches()) > trained, 60)
    (tmp_path / "hurry").touch()
    finished(plane, "paused")
    assert sorted(batches()) == list(range(EPOCHS * SAMPLES // BATCH)), "each batch was done once"
