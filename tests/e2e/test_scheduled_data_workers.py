"""A job that waits for data gets data workers; a GPU pod that needs their cores gets them.

With real data workers and a real training loop, so that what is asserted is what the model saw.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane import ControlPlane, Json, job_manifest, needs_kubectl, script, until
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
    serving,
    undisturbed,
)
from tests.patience import patient

pytestmark = [needs_kubectl, pytest.mark.e2e, pytest.mark.slow]

SCRIPT = textwrap.dedent(
    """
    import hashlib, itertools, os, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    read, step = float(os.environ.get("READ", 0)), float(os.environ.get("STEP", 0))
    epochs = int(os.environ.get("EPOCHS", 0))

    class Far(Dataset):
        def __len__(self):
            return 480
        def __getitem__(self, index):
            time.sleep(read)
            return torch.rand(4) + index, index

    torch.manual_seed(1)
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(Far(), batch_size=8, shuffle=True, generator=order)
    for epoch in itertools.count():
        digest, seen = hashlib.sha256(), []
        for batch, indices in loader:
            time.sleep(step)
            seen += indices.tolist()
            digest.update(batch.numpy().tobytes() + indices.numpy().tobytes())
        lost, repeated = len(set(range(480)) - set(seen)), len(seen) - len(set(seen))
        print("epoch", epoch, "lost", lost, "repeated", repeated, digest.hexdigest(), flush=True)
        if epoch + 1 == epochs or os.path.exists(os.environ.get("ENOUGH", "")):
            break
    print("trained", flush=True)
    """
)
"""Reads of 20 ms, as from storage far away, and steps that leave the processor to others.

It goes on for as many epochs as it is told, or until it is told that it is enough.
"""


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


def assert_nothing_lost(plane: ControlPlane, enough: Path, folder: Path) -> None:
    """Let the job end; it has seen every sample once per epoch, and all bits of each."""
    eventually(plane, lambda: "epoch 0 " in log_of(plane))
    enough.touch()
    eventually(plane, lambda: "trained" in log_of(plane))
    *epochs, end = [
        line for line in log_of(plane).splitlines() if line.startswith(("epoch ", "trained"))
    ]
    assert (len(epochs) > 1, end) == (True, "trained")
    assert all("lost 0 repeated 0" in line for line in epochs)
    with undisturbed(folder, SCRIPT, EPOCHS=str(len(epochs))) as alone:
        wanted, _ = alone.communicate(timeout=patient(30))
    assert [*epochs, end] == wanted.splitlines()


def test_it_is_tuned_in_few_steps_and_its_data_workers_use_what_would_strand(
    tmp_path: Path,
) -> None:
    node = {"cpu": "8", "memory": "16Gi", "accelerators": {GPU: 2}}
    nodes = [{"name": "gpu-a", **node}, {"name": "gpu-b", **node}]
    enough = tmp_path / "enough"
    with plane_of(tmp_path, nodes) as plane:
        plane.apply(hungry_job(enough, cpu="2", gpus=2, step=0.09))
        [worker] = until(lambda: [one for one in pods(plane, "worker") if is_ready(one)])

        def trained_smaller() -> Any:
            return [one for one in scales(plane) if "worker" in one["spec"]["roles"]]

        [cut] = eventually(plane, trained_smaller, 45)
        asked = [one["spec"]["roles"] for one in scales(plane)]
        print(trace(plane))
        # Both data workers at once where its input was measured by then, or one and a second one
        # (or two more, where the first is short of its promise); with them the queue is full, and
        # the training worker of two cores is tried with one.
        *grown, _ = asked
        numbers = [one["dataWorker"]["replicas"] for one in grown]
        assert numbers in ([2], [1, 2], [1, 3], [2, 3], [1, 2, 3])
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
        assert_nothing_lost(plane, enough, tmp_path)


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


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    nodes: list[Json] = [
        {"name": "gpu", "cpu": "8", "memory": "16Gi", "accelerators": {GPU: 2}},
        {"name": "cpu", "cpu": "4", "memory": "8Gi"},
    ]
    with plane_of(tmp_path_factory.mktemp("plane"), nodes) as running:
        yield running


@pytest.fixture
def empty_nodes(two_nodes: ControlPlane) -> Iterator[ControlPlane]:
    """The same for each test, with nothing on its nodes."""
    yield two_nodes
    wait = f"--timeout={patient(40):.0f}s"
    two_nodes.kubectl("uncordon", "cpu")
    two_nodes.kubectl("delete", "ej,scales.penstock.dev", "--all", wait)
    two_nodes.kubectl("delete", "pods", "--all", wait)


@pytest.mark.parametrize("preempts", [False, True], ids=["moved", "preempted"])
def test_a_gpu_pod_that_needs_their_cores_gets_them_and_no_batch_is_lost(
    tmp_path: Path, empty_nodes: ControlPlane, preempts: bool
) -> None:
    enough = tmp_path / "enough"
    plane = empty_nodes
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

    eventually(plane, all_are_where_they_should_be, every_seconds=0.1)
    if not preempts:
        assert fewest == 2, "the new one serves before the old one leaves"
        [asked] = [one for one in scales(plane) if one["spec"]["reason"] == "RoomForAccelerators"]
        assert "incoming" in asked["spec"]["message"]
        ranks = asked["spec"]["roles"]["dataWorker"]["ranks"]
        assert {rank["avoidNodes"][0] for rank in ranks.values()} == {"gpu"}
    assert " is lost (" not in log_of(plane), "a data worker hands back its steps as it leaves"
    assert_nothing_lost(plane, enough, tmp_path)
