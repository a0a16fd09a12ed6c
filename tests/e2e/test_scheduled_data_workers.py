"""A job that waits for data gets data workers; a GPU pod that needs their cores gets them.

With real data workers and a real training loop, so that what is asserted is what the model saw.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane import (
    ControlPlane,
    Json,
    control_plane,
    job_manifest,
    needs_kubectl,
    script,
    until,
)

pytestmark = [needs_kubectl, pytest.mark.e2e, pytest.mark.slow]

GPU = "nvidia.com/gpu"
INTERVAL_SECONDS = 2
EPOCHS = 30
SCRIPT = textwrap.dedent(
    f"""
    import hashlib, os, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    read, step = float(os.environ.get("READ", 0)), float(os.environ.get("STEP", 0))

    class Far(Dataset):
        def __len__(self):
            return 480
        def __getitem__(self, index):
            time.sleep(read)
            return torch.rand(4) + index, index

    torch.manual_seed(1)
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(Far(), batch_size=8, shuffle=True, generator=order)
    for epoch in range({EPOCHS}):
        digest, seen = hashlib.sha256(), []
        for batch, indices in loader:
            time.sleep(step)
            seen += indices.tolist()
            digest.update(batch.numpy().tobytes() + indices.numpy().tobytes())
        lost, repeated = len(set(range(480)) - set(seen)), len(seen) - len(set(seen))
        print("epoch", epoch, "lost", lost, "repeated", repeated, digest.hexdigest(), flush=True)
        if os.path.exists(os.environ.get("ENOUGH", "")):
            break
    print("trained", flush=True)
    """
)
"""Reads of 20 ms, as from storage far away, and steps that leave the processor to others."""


def container(name: str, cpu: str, gpus: int = 0, **fields: Any) -> Json:
    limits = {"cpu": cpu, "memory": "256Mi"} | ({GPU: gpus} if gpus else {})
    return {
        "name": name,
        "image": "penstock/examples",
        "resources": {"limits": limits},
        **fields,
    }


def hungry_job(enough: Path, *, cpu: str, gpus: int, step: float, most: int = 3) -> Json:
    """A job that trains until the file is there, and would be faster with more data."""
    job = job_manifest("hungry", script(SCRIPT), optimize="Manual")
    env = {"READ": "0.02", "STEP": str(step), "ENOUGH": str(enough)}
    main = container("main", cpu, gpus, command=script(SCRIPT))
    main["env"] = [{"name": name, "value": value} for name, value in env.items()]
    roles = job["spec"]["replicaSpecs"]
    roles["worker"]["template"]["spec"]["containers"] = [main]
    feeder = container("main", "1", command=["penstock", "data-worker"])
    roles["dataWorker"] = {"maxReplicas": most, "template": {"spec": {"containers": [feeder]}}}
    return job


@contextmanager
def undisturbed(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The same program alone, without waiting for anything."""
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--data-workers", "0", "--", sys.executable, "-c", SCRIPT]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    with (folder / "alone.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environ
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@contextmanager
def plane_of(folder: Path, nodes: list[Json], *options: str) -> Iterator[ControlPlane]:
    """A control plane on these nodes whose scheduler looks every few seconds."""
    declared = folder / "nodes.yaml"
    declared.write_text(yaml.safe_dump({"nodes": nodes}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_SCHEDULER_INTERVAL", str(INTERVAL_SECONDS))
        patch.setenv("PENSTOCK_SCHEDULER_TUNE_TRAINING_WORKERS", "1")
        with control_plane(folder, f"--nodes={declared}", *options) as running:
            yield running


def eventually(plane: ControlPlane, condition: Callable[[], Any], seconds: float = 40.0) -> Any:
    """`until`, and what there was to see where it never comes."""
    try:
        return until(condition, seconds)
    except AssertionError:
        seen = plane.kubectl("get", "ej,scales,pods,events", "-o", "wide")
        raise AssertionError(seen + log_of(plane) + plane.last_words()) from None


def pods(plane: ControlPlane, role: str) -> list[Json]:
    """The job's pods that are there to stay."""
    items: list[Json] = plane.get("pods", selector=f"penstock.dev/role={role}")["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def serving(plane: ControlPlane) -> list[Json]:
    """The data workers that make batches."""
    return [one for one in pods(plane, "data-worker") if is_ready(one)]


def log_of(plane: ControlPlane) -> str:
    return plane.kubectl("logs", "-l", "penstock.dev/role=worker", "--tail=-1", check=False)


def scales(plane: ControlPlane, source: str = "Scheduler") -> list[Json]:
    """What the scheduler asked for, in this order."""
    own = [one for one in plane.get("scales")["items"] if one["spec"]["source"] == source]
    return sorted(own, key=lambda one: str(one["metadata"]["name"]))


def assert_nothing_lost(plane: ControlPlane, enough: Path, alone: subprocess.Popen[str]) -> None:
    """Let the job end; it has seen every sample once per epoch, and all bits of each."""
    eventually(plane, lambda: "epoch 0 " in log_of(plane))
    enough.touch()
    eventually(plane, lambda: "trained" in log_of(plane))
    told = [line for line in log_of(plane).splitlines() if line.startswith("epoch ")]
    assert all("lost 0 repeated 0" in line for line in told)
    wanted, _ = alone.communicate(timeout=30)
    assert told == wanted.splitlines()[: len(told)]
    assert len(told) > 1


def gpu_pod(name: str, cpu: str, **spec: Any) -> Json:
    live = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    spec = {"terminationGracePeriodSeconds": 1, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container("main", cpu, 1, command=live)], **spec},
    }


def test_it_is_tuned_in_few_steps_and_its_data_workers_use_what_would_strand(
    tmp_path: Path,
) -> None:
    node = {"cpu": "8", "memory": "16Gi", "accelerators": {GPU: 2}}
    nodes = [{"name": "gpu-a", **node}, {"name": "gpu-b", **node}]
    enough = tmp_path / "enough"
    with undisturbed(tmp_path) as alone, plane_of(tmp_path, nodes) as plane:
        plane.apply(hungry_job(enough, cpu="2", gpus=2, step=0.09))
        [worker] = until(lambda: [one for one in pods(plane, "worker") if is_ready(one)])

        def trained_smaller() -> Any:
            return [one for one in scales(plane) if "worker" in one["spec"]["roles"]]

        [cut] = eventually(plane, trained_smaller, 45)
        asked = [one["spec"]["roles"] for one in scales(plane)]
        print(trace(plane))
        # Both data workers at once where its input was measured by then, or one and a second one
        # (a third where other load slows them down); with them the queue is full, and the training
        # worker of two cores is tried with one.
        *grown, _ = asked
        numbers = [one["dataWorker"]["replicas"] for one in grown]
        assert numbers in ([2], [1, 2], [2, 3], [1, 2, 3])
        assert asked[0]["dataWorker"]["resources"]["cpu"] == "1"
        assert cut["spec"]["roles"] == {"worker": {"resources": {"cpu": "1"}}}
        # All accelerators of the training worker's node are in use, so its CPU would strand.
        own = worker["spec"]["nodeName"]
        assert {one["spec"]["nodeName"] for one in pods(plane, "data-worker")} == {own}
        placed = plane.kubectl("get", "events", "--field-selector=reason=Placed")
        assert "next best" in placed

        def smaller() -> bool:
            [one] = pods(plane, "worker")
            [main] = one["spec"]["containers"]
            same = one["metadata"]["uid"] == worker["metadata"]["uid"]
            assert same, "it is resized in place"
            return bool(main["resources"]["limits"]["cpu"] == "1")

        eventually(plane, smaller)
        assert_nothing_lost(plane, enough, alone)


def trace(plane: ControlPlane) -> str:
    """The tuning as GoldMiner's Fig. 13 shows it, a line for each step."""
    lines, data, cores = ["data workers  of cores  training cores  why"], "0", "-"
    training = "as given"
    for one in scales(plane):
        roles = one["spec"]["roles"]
        if wanted := roles.get("dataWorker"):
            data, cores = str(wanted["replicas"]), wanted.get("resources", {}).get("cpu", cores)
        training = roles.get("worker", {}).get("resources", {}).get("cpu", training)
        lines.append(f"{data:>12}  {cores:>8}  {training:>14}  {one['spec']['message']}")
    return "\n".join(lines)


@pytest.mark.parametrize("preempts", [False, True], ids=["moved", "preempted"])
def test_a_gpu_pod_that_needs_their_cores_gets_them_and_no_batch_is_lost(
    tmp_path: Path, preempts: bool
) -> None:
    nodes: list[Json] = [
        {"name": "gpu", "cpu": "8", "memory": "16Gi", "accelerators": {GPU: 2}},
        {"name": "cpu", "cpu": "4", "memory": "8Gi"},
    ]
    enough = tmp_path / "enough"
    with undisturbed(tmp_path) as alone, plane_of(tmp_path, nodes) as plane:
        plane.kubectl("cordon", "cpu")
        plane.apply(hungry_job(enough, cpu="1", gpus=1, step=0.02, most=2))
        uid = plane.get("ej", "hungry")["metadata"]["uid"]
        job = {"name": "hungry", "uid": uid}
        spec = {"jobRef": job, "roles": {"dataWorker": {"replicas": 2}}}
        head = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Scale"}
        plane.apply({**head, "metadata": {"name": "two"}, "spec": {**spec, "source": "User"}})
        eventually(plane, lambda: len(serving(plane)) == 2)
        assert {one["spec"]["nodeName"] for one in pods(plane, "data-worker")} == {"gpu"}
        plane.kubectl("uncordon", "cpu")

        policy = {} if preempts else {"preemptionPolicy": "Never"}
        plane.apply(gpu_pod("incoming", "6", **policy))
        fewest = 2

        def all_are_where_they_should_be() -> bool:
            nonlocal fewest
            there = serving(plane)
            fewest = min(fewest, len(there))
            runs = plane.get("pods", "incoming")["status"].get("phase") == "Running"
            return runs and [one["spec"]["nodeName"] for one in there] == ["cpu", "cpu"]

        eventually(plane, all_are_where_they_should_be)
        if not preempts:
            assert fewest == 2, "the new one serves before the old one leaves"
            [asked] = [
                one for one in scales(plane) if one["spec"]["reason"] == "RoomForAccelerators"
            ]
            assert "incoming" in asked["spec"]["message"]
            ranks = asked["spec"]["roles"]["dataWorker"]["ranks"]
            assert {rank["avoidNodes"][0] for rank in ranks.values()} == {"gpu"}
        assert " is lost (" not in log_of(plane), "a data worker hands back its steps as it leaves"
        assert_nothing_lost(plane, enough, alone)


def test_a_gpu_pod_takes_the_accelerator_of_a_stage_worker_that_was_killed_before(
    tmp_path: Path,
) -> None:
    nodes: list[Json] = [{"name": "gpu", "cpu": "8", "memory": "16Gi", "accelerators": {GPU: 2}}]
    enough = tmp_path / "enough"
    role = "accelerated-data-worker"
    with undisturbed(tmp_path) as alone, plane_of(tmp_path, nodes) as plane:
        job = hungry_job(enough, cpu="1", gpus=1, step=0.02)
        stage = container("main", "1", 1, command=["penstock", "data-worker"])
        roles = job["spec"]["replicaSpecs"]
        roles["dataWorker"]["maxReplicas"] = 0
        roles["acceleratedDataWorker"] = {"template": {"spec": {"containers": [stage]}}}
        plane.apply(job)
        uid = plane.get("ej", "hungry")["metadata"]["uid"]
        spec = {
            "jobRef": {"name": "hungry", "uid": uid},
            "roles": {"acceleratedDataWorker": {"replicas": 1}},
            "source": "User",
        }
        head = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Scale"}
        plane.apply({**head, "metadata": {"name": "stage"}, "spec": spec})

        def there() -> list[Json]:
            return [one for one in pods(plane, role) if is_ready(one)]

        [first] = eventually(plane, there)
        told = {one["name"]: one.get("value") for one in first["spec"]["containers"][0]["env"]}
        assert told["PENSTOCK_ACCELERATOR"] == GPU
        plane.kubectl("delete", "pod", first["metadata"]["name"], "--grace-period=0", "--force")

        def came_back() -> bool:
            return [one["metadata"]["uid"] for one in there()] not in (
                [],
                [first["metadata"]["uid"]],
            )

        eventually(plane, came_back)
        plane.apply(gpu_pod("incoming", "2", preemptionPolicy="Never"))
        eventually(plane, lambda: plane.get("pods", "incoming")["status"].get("phase") == "Running")
        [asked] = [one for one in scales(plane) if one["spec"]["reason"] == "RoomForAccelerators"]
        assert asked["spec"]["roles"] == {"acceleratedDataWorker": {"replicas": 0}}
        assert "needs the accelerators on gpu" in asked["spec"]["message"]
        assert_nothing_lost(plane, enough, alone)
