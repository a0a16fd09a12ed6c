"""A job whose input has two stages, on two roles: one is killed, and one gives way to a GPU pod.

With real data workers and a real training, whose losses are compared with those of the same program
alone, bit by bit. The stage with an accelerator runs on the CPU: what is asked for is an extended
resource, as a cluster counts it. And a job whose program knows nothing of Penstock: its status
tells what has left its steps.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from penstock.local.control_plane.components import penstock
from tests.e2e.control_plane import ControlPlane, Json, job_manifest, needs_kubectl, script
from tests.e2e.scheduled import (
    GPU,
    container,
    eventually,
    gpu_pod,
    is_ready,
    log_of,
    plane_of,
    pods,
    scales,
    undisturbed,
)
from tests.patience import patient

pytestmark = [needs_kubectl, pytest.mark.e2e, pytest.mark.slow]

STAGE = "accelerated-data-worker"
SCRIPT = textwrap.dedent(
    """
    import hashlib, os, time
    import numpy as np
    import torch
    from torch import nn
    from penstock.data import Loader
    from penstock.data.pipeline import Stage

    read, step = float(os.environ.get("READ", 0)), float(os.environ.get("STEP", 0))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 16)).eval()
    encoder.requires_grad_(False)
    head = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.2), nn.Linear(8, 3))

    def here():
        return os.environ.get("PENSTOCK_POD_NAME", "")

    class Far:
        def __len__(self):
            return 240
        def __getitem__(self, index):
            time.sleep(read)
            row = np.random.default_rng(index).standard_normal(8, np.float32)
            return {"row": row, "index": index, "read": here()}

    @torch.no_grad()
    def encode(batch):
        hidden = encoder(torch.from_numpy(batch["row"])).numpy()
        return {**batch, "hidden": hidden, "encoded": here()}

    loader = Loader(Far(), batch_size=8, seed=1, stages=[Stage(encode, batched=True)])
    ways = set()
    for epoch in range(30):
        digest, seen = hashlib.sha256(), []
        for batch in loader:
            time.sleep(step)
            labels = torch.from_numpy(batch["index"]) % 3
            loss = nn.functional.cross_entropy(head(torch.from_numpy(batch["hidden"])), labels)
            head.zero_grad()
            loss.backward()
            for one in head.parameters():
                one.data.sub_(one.grad, alpha=0.05)
            seen += batch["index"].tolist()
            digest.update(float(loss).hex().encode())
            way = " then ".join({*batch["read"]}) + " to " + batch["encoded"]
            if way not in ways:
                ways.add(way)
                print("way", way, flush=True)
        lost, repeated = len(set(range(240)) - set(seen)), len(seen) - len(set(seen))
        trained = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in head.parameters()))
        print("epoch", epoch, "lost", lost, "repeated", repeated, digest.hexdigest(),
              trained.hexdigest(), flush=True)
        if os.path.exists(os.environ.get("ENOUGH", "")):
            break
    print("trained", flush=True)
    """
)
"""Reads of 20 ms; prints which pods have read and encoded, each way once."""


def two_stages(enough: Path) -> Json:
    """A job that trains until the file is there, with a data worker of each stage."""
    job = job_manifest("staged", script(SCRIPT), optimize="Manual")
    main = container("main", "1", 1, command=script(SCRIPT))
    env = {"READ": "0.02", "STEP": "0.02", "ENOUGH": str(enough)}
    main["env"] = [{"name": name, "value": value} for name, value in env.items()]
    roles = job["spec"]["replicaSpecs"]
    roles["worker"]["template"]["spec"]["containers"] = [main]
    for role, gpus in (("dataWorker", 0), ("acceleratedDataWorker", 1)):
        feeder = container("main", "1", gpus, command=["penstock", "data-worker"])
        roles[role] = {"template": {"spec": {"containers": [feeder]}}, "maxReplicas": 1}
    return job


def serving(plane: ControlPlane, role: str) -> list[str]:
    """Names of the pods of a role that make batches."""
    return [str(one["metadata"]["name"]) for one in pods(plane, role) if is_ready(one)]


def test_a_killed_stage_worker_and_a_gpu_pod_in_the_place_of_the_next_change_no_bit(
    tmp_path: Path,
) -> None:
    nodes: list[Json] = [{"name": "gpu", "cpu": "8", "memory": "16Gi", "accelerators": {GPU: 2}}]
    enough = tmp_path / "enough"
    with undisturbed(tmp_path, SCRIPT) as alone, plane_of(tmp_path, nodes) as plane:
        plane.apply(two_stages(enough))
        uid = plane.get("ej", "staged")["metadata"]["uid"]
        spec = {
            "jobRef": {"name": "staged", "uid": uid},
            "roles": {"dataWorker": {"replicas": 1}, "acceleratedDataWorker": {"replicas": 1}},
            "source": "User",
        }
        head = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Scale"}
        plane.apply({**head, "metadata": {"name": "both"}, "spec": spec})
        [reads] = eventually(plane, lambda: serving(plane, "data-worker"))
        [first] = eventually(plane, lambda: serving(plane, STAGE))
        eventually(plane, lambda: f"way {reads} to {first}" in log_of(plane))

        plane.fault("kill_container", name=first)

        def came_back() -> Any:
            return [one for one in serving(plane, STAGE) if one != first]

        [second] = eventually(plane, came_back)
        eventually(plane, lambda: f"way {reads} to {second}" in log_of(plane))

        plane.apply(gpu_pod("incoming", "2", preemptionPolicy="Never"))
        eventually(plane, lambda: plane.get("pods", "incoming")["status"].get("phase") == "Running")
        assert not serving(plane, STAGE)
        assert serving(plane, "data-worker") == [reads], "it has no accelerator to give"
        [asked] = [one for one in scales(plane) if one["spec"]["reason"] == "RoomForAccelerators"]
        assert asked["spec"]["roles"] == {"acceleratedDataWorker": {"replicas": 0}}
        assert "needs the accelerators on gpu" in asked["spec"]["message"]

        enough.touch()
        eventually(plane, lambda: "trained" in log_of(plane))
        told = [line for line in log_of(plane).splitlines() if line.startswith("epoch ")]
        assert len(told) > 1
        assert all("lost 0 repeated 0" in line for line in told)
        wanted, _ = alone.communicate(timeout=30)
        assert (
            told == [line for line in wanted.splitlines() if line.startswith("epoch ")][: len(told)]
        )


FROZEN = textwrap.dedent(
    """
    import os
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Pictures(Dataset):
        def __len__(self):
            return 128
        def __getitem__(self, index):
            generator = torch.Generator().manual_seed(index)
            return torch.rand(3, 32, 32, generator=generator), index % 3

    torch.set_num_threads(1)
    encoder = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten())
    encoder.eval().requires_grad_(False)
    head = nn.Linear(32 * 28 * 28, 3)
    loader = DataLoader(Pictures(), batch_size=8, num_workers=1)
    while not os.path.exists(os.environ["ENOUGH"]):
        for pixels, labels in loader:
            with torch.no_grad():
                hidden = encoder(pixels * 2 - 1)
            loss = nn.functional.cross_entropy(head(hidden), labels)
            head.zero_grad()
            loss.backward()
            for one in head.parameters():
                one.data.sub_(one.grad, alpha=0.01)
    """
)
"""An ordinary program with a frozen encoder, which knows nothing of Penstock."""


def test_the_status_says_what_has_left_the_step_and_keeps_it_when_the_job_has_ended(
    plane: ControlPlane, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    job = job_manifest("frozen", script(FROZEN), optimize="Manual", input={"partition": "Auto"})
    [main] = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    main["env"] = [{"name": "ENOUGH", "value": str(enough)}]
    plane.apply(job)

    def told() -> Any:
        status = plane.get("ej", "frozen").get("status") or {}
        [one] = (status.get("input") or {}).get("partition") or [{}]
        return one if one.get("state") == "On" else None

    said = eventually(plane, told)
    assert (said["name"], said["source"]) == ("the loader of Pictures", "worker-0")
    assert "Sequential" in said["prefix"]
    assert said["crossingBytes"] == 8 * 32 * 28 * 28 * 4
    assert "why" not in said

    def partitioned() -> Any:
        conditions = plane.get("ej", "frozen")["status"]["conditions"]
        [one] = [one for one in conditions if one["type"] == "InputPartitioned"]
        return one if one["status"] == "True" else None

    found = eventually(plane, partitioned)
    assert found["reason"] == "StagesMoved"
    assert found["message"].startswith(f"1 of 1 moved, {said['crossingBytes']} bytes cross in each")
    eventually(plane, lambda: (told() or {}).get("movedPercent", 0) > 0)
    enough.touch()
    plane.wait_for("frozen", "Succeeded")
    assert told()["movedPercent"] > 0
    environ = {**os.environ, "KUBECONFIG": str(plane.home.kubeconfig)}
    described = subprocess.run(
        penstock("describe", "frozen"),
        capture_output=True,
        text=True,
        check=True,
        env=environ,
        timeout=patient(30),
    )
    assert "the loader of Pictures  On, " in described.stdout
    assert "InputPartitioned" in described.stdout.partition("Events")[0]
    assert "InputPartitioned" in described.stdout.partition("Events")[2]
    plane.kubectl("delete", "ej", "frozen")
