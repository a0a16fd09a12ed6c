"""An ElasticJob whose batches are made on other nodes than the one it trains on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.planes import SCRIPT
from tests.e2e.control_plane import ROOT, ControlPlane, job_manifest, needs_kubectl, script, until
from tests.e2e.digits import final_result

DATA_WORKER = ["penstock", "data-worker"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]


def made_alone() -> str:
    """What the script prints without any data worker."""
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--data-workers", "0", "--", sys.executable, "-c", SCRIPT]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    done = subprocess.run(command, capture_output=True, text=True, timeout=55, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_batches_made_on_other_nodes_are_the_same(plane: ControlPlane) -> None:
    job = job_manifest("fed", script(SCRIPT))
    worker = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    worker["nodeSelector"] = {"kubernetes.io/hostname": "gpu-1"}
    worker["containers"][0]["env"] = [{"name": "SLOW", "value": "0.06"}]
    container = {"name": "main", "image": "penstock/examples"}
    job["spec"]["replicaSpecs"]["dataWorker"] = {
        "replicas": 2,
        "template": {
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": "cpu-1"},
                "containers": [{**container, "command": DATA_WORKER}],
            }
        },
    }
    job["spec"]["optimize"] = "Manual"
    plane.apply(job)
    selector = "penstock.dev/job=fed,penstock.dev/role=data-worker"
    until(lambda: "serving" in plane.kubectl("logs", "-l", selector, "--tail=50", check=False))
    nodes = {pod["spec"]["nodeName"] for pod in plane.get("pods", selector=selector)["items"]}
    assert nodes == {"cpu-1"}
    plane.wait_for("fed", "Succeeded", 55)
    [trained] = plane.get("pods", selector="penstock.dev/job=fed,penstock.dev/role=worker")["items"]
    printed = plane.kubectl("logs", trained["metadata"]["name"])
    assert "joined" in printed or "all " in printed
    lines = [line for line in printed.splitlines() if line.startswith(("order ", "all "))]
    assert lines == made_alone().splitlines()
    plane.kubectl("delete", "ej", "fed")


def test_an_elastic_job_has_its_batches_made_by_a_data_worker(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Both at once: two workers share the steps, and neither makes all batches itself."""
    fed, hurry = tmp_path / "fed", tmp_path / "hurry"
    program = [sys.executable, str(ROOT / "tests/trainer/programs/loading.py")]
    options = [f"--fed={fed}", f"--hurry={hurry}", "--sample-seconds=0.002"]
    job = job_manifest(
        "elastic-fed",
        ["penstock", "run", "--", *program, *options],
        worker={"replicas": 2, "minReplicas": 1, "maxReplicas": 2},
        optimize="Manual",
    )
    job["spec"]["strategy"] = "AllReduce"
    container = {"name": "main", "image": "penstock/examples"}
    job["spec"]["replicaSpecs"]["dataWorker"] = {
        "replicas": 1,
        "template": {"spec": {"containers": [{**container, "command": DATA_WORKER}]}},
    }
    plane.apply(job)
    until(fed.exists)
    hurry.touch()
    plane.wait_for("elastic-fed", "Succeeded", 55)
    result = final_result(plane, "elastic-fed")
    assert result["samples_seen"] == 4 * 480
    assert result["samples_lost"] == result["samples_repeated"] == result["wrong_rows"] == 0
    plane.kubectl("delete", "ej", "elastic-fed")
