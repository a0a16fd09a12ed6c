"""An ElasticJob whose batches are made on other nodes than the one it trains on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.planes import SCRIPT
from tests.e2e.control_plane import ControlPlane, job_manifest, needs_kubectl, script, until

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
                "containers": [{**container, "command": ["penstock", "data-worker"]}],
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
