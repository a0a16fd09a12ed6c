"""Jobs whose workers form no group end within a minute, by a condition, an Event and a log line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.control_plane import KUBECTL, ROOT, ControlPlane, Json, job_manifest, needs_kubectl
from tests.e2e.control_plane import until as wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

PROGRAMS = ROOT / "tests/trainer/programs"
WITHIN_SECONDS = 60.0


def two_workers(name: str, program: str, *arguments: str, **spec: object) -> Json:
    command = ["penstock", "run", "--", sys.executable, str(PROGRAMS / program), *arguments]
    count = {"minReplicas": 2, "maxReplicas": 2}
    return job_manifest(
        name, command, strategy="AllReduce", optimize="Manual", worker=count, **spec
    )


def failed(plane: ControlPlane, job: str) -> Json:
    """The condition Failed, once the job has ended."""

    def look() -> Json | None:
        conditions = plane.get("ej", job).get("status", {}).get("conditions", [])
        by_type: dict[str, Json] = {one["type"]: one for one in conditions}
        ended = any(by_type.get(kind, {}).get("status") == "True" for kind in ENDS)
        return by_type["Failed"] if ended else None

    condition: Json = wait_until(look, 100)
    return condition


ENDS = ("Failed", "Succeeded")


def test_two_plain_workers_end_as_failed_and_say_why(plane: ControlPlane, tmp_path: Path) -> None:
    plane.apply(two_workers("copies", "plain.py", "600"))
    worker = "penstock.dev/job=copies,penstock.dev/role=worker,penstock.dev/rank=0"

    def running() -> str | None:
        pods = plane.get("pods", selector=worker)["items"]
        return (
            pods[0]["metadata"]["name"]
            if pods and pods[0]["status"].get("phase") == "Running"
            else None
        )

    name = wait_until(running, 30)
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        following = subprocess.Popen(
            [str(KUBECTL), "logs", "--follow", name],
            stdout=output,
            stderr=output,
            env={**os.environ, "KUBECONFIG": str(plane.home.kubeconfig)},
        )
        try:
            wait_until(lambda: "training begins" in log.read_text(), 60)
            began = time.monotonic()
            condition = failed(plane, "copies")
            assert time.monotonic() - began < WITHIN_SECONDS
            following.wait(20)
        finally:
            following.kill()
            following.wait(10)
    assert condition["status"] == "True", condition
    assert condition["reason"] == "SeparateCopies", condition
    for words in (
        "worker 0 is rank 0 of 1",
        "elastic.session",
        "worker-0.copies:",
        "maxReplicas: 1",
    ):
        assert words in condition["message"]
    assert "SeparateCopies: " in log.read_text()
    events = json.loads(plane.kubectl("get", "events", "-o", "json"))["items"]
    own = [one for one in events if one["involvedObject"]["name"] == "copies"]
    assert any("separate copies" in one["message"] for one in own), own
    pods = plane.get("pods", selector=worker)["items"]
    assert all(pod["metadata"]["labels"]["penstock.dev/incarnation"] == "0" for pod in pods)
    plane.kubectl("delete", "ej", "copies", "--wait=false")


def test_programs_that_end_without_a_group_are_no_success(plane: ControlPlane) -> None:
    plane.apply(two_workers("quiet", "numpy_only.py"))
    condition = failed(plane, "quiet")
    assert (condition["status"], condition["reason"]) == ("True", "SeparateCopies")
    plane.kubectl("delete", "ej", "quiet", "--wait=false")


def test_independent_workers_succeed(plane: ControlPlane) -> None:
    plane.apply(two_workers("apart", "numpy_only.py", independentWorkers=True))
    condition = failed(plane, "apart")
    assert condition["status"] == "False", condition
    plane.kubectl("delete", "ej", "apart", "--wait=false")


def test_a_group_that_nobody_told_who_is_in_it_ends_with_its_own_error(plane: ControlPlane) -> None:
    manifest = two_workers("unset", "ddp.py", "600", failurePolicy={"maxRestarts": 0})
    plane.apply(manifest)
    condition = failed(plane, "unset")
    assert condition["reason"] == "MaxRestartsExceeded"
    assert "environment variable RANK expected" in condition["message"]
    plane.kubectl("delete", "ej", "unset", "--wait=false")
