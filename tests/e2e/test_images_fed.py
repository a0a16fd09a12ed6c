"""``examples/images/train.py`` as an ElasticJob whose data workers, on other nodes, come and go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.e2e.control_plane import ROOT, ControlPlane, Json, needs_kubectl, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

SCRIPT = "examples/images/train.py"
ARGUMENTS = ("--epochs=3", "--crops=16")
GATES = {2: 2, 7: 1, 12: 2}
"""Steps (5 make an epoch) at which the job waits until it has so many data workers."""

WATCHER = textwrap.dedent(
    f"""
    # Seen from outside the program: what each step is given, to the last bit. The logits depend on
    # all batches before, so that equal ones mean equal training.
    import os, sys
    if len(sys.orig_argv) > 1 and sys.orig_argv[1].endswith({SCRIPT!r}):
        import atexit, hashlib, pathlib, time
        import torch
        digest, steps, loss = hashlib.sha256(), 0, torch.nn.functional.cross_entropy
        gates, folder = {GATES!r}, os.environ.get("GATES")
        def watched(logits, targets):
            global steps
            steps += 1
            digest.update(logits.detach().numpy().tobytes() + targets.numpy().tobytes())
            if folder and steps in gates:
                from penstock.data.consuming.process import consumer_of_process
                pathlib.Path(folder, f"at-{{steps}}").touch()
                deadline, consumer = time.monotonic() + 50, consumer_of_process()
                while len(consumer.workers) != gates[steps]:
                    assert time.monotonic() < deadline, consumer.workers
                    time.sleep(0.05)
            return loss(logits, targets)
        torch.nn.functional.cross_entropy = watched
        atexit.register(lambda: print("digest", steps, digest.hexdigest(), flush=True))
    """
)


def learned(printed: str) -> list[str]:
    """What must be the same: the digest, and loss and accuracy of each epoch."""
    return re.findall(r"^digest .*$|loss [\d.]+, accuracy [\d.]+", printed, re.MULTILINE)


def beside_the_program(folder: Path) -> subprocess.Popen[str]:
    """The same with data workers on this machine and no cluster; runs while the job does."""
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--data-workers", "2", "--", sys.executable, SCRIPT, *ARGUMENTS]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    environ.update(PYTHONPATH=str(folder), OMP_NUM_THREADS="1")
    return subprocess.Popen(
        [*command, f"--data={folder / 'local'}"],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fed_job(folder: Path) -> Json:
    """``examples/images/job_data_workers.yaml``, watched and cut short."""
    job: Json = yaml.safe_load((ROOT / "examples/images/job_data_workers.yaml").read_text())
    [container] = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    assert container["command"] == ["penstock", "run", "--", "python", SCRIPT]
    container["command"] += [*ARGUMENTS, f"--data={folder / 'cluster'}"]
    container["env"] = [
        {"name": "PYTHONPATH", "value": str(folder)},
        {"name": "GATES", "value": str(folder)},
        {"name": "OMP_NUM_THREADS", "value": "1"},
    ]
    return job


def scale(plane: ControlPlane, name: str, replicas: int) -> None:
    """So many data workers, whatever the scheduler thinks of it."""
    uid = plane.get("ej", "images-fed")["metadata"]["uid"]
    spec = {
        "jobRef": {"name": "images-fed", "uid": uid},
        "roles": {"dataWorker": {"replicas": replicas}},
        "source": "User",
        "policy": "Pin",
    }
    head = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Scale", "metadata": {"name": name}}
    plane.apply({**head, "spec": spec})


def test_the_images_job_learns_the_same_while_data_workers_come_and_go(
    plane: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCHER)
    (tmp_path / "local").mkdir()
    with beside_the_program(tmp_path) as local:
        try:
            plane.apply(fed_job(tmp_path))
            scale(plane, "fed-two", 2)
            until((tmp_path / "at-7").exists, 50)
            pods = plane.get("pods", selector="penstock.dev/job=images-fed")["items"]
            nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
            training = nodes.pop("images-fed-worker-0-0")
            assert training not in [nodes[f"images-fed-data-worker-{rank}-0"] for rank in (0, 1)]
            scale(plane, "fed-one", 1)
            until((tmp_path / "at-12").exists, 50)
            scale(plane, "fed-again", 2)
            plane.wait_for("images-fed", "Succeeded", 30)
            printed = plane.kubectl("logs", "images-fed-worker-0-0")
            wanted, errors = local.communicate(timeout=30)
        finally:
            local.kill()
    assert local.returncode == 0, errors
    assert "stays in this process" not in printed
    assert len(learned(wanted)) == 4
    assert learned(printed) == learned(wanted)
    plane.kubectl("delete", "ej", "images-fed")
