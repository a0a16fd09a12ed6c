"""Two jobs of a share group: the data worker of one makes batches for the training of both."""

from __future__ import annotations

import textwrap
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.control_plane import ControlPlane, job_manifest, needs_kubectl, script, until

DATA_WORKER = ["penstock", "data-worker"]
PROGRAM = textwrap.dedent(
    """
    import os, time
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 120
        def __getitem__(self, index):
            time.sleep(0.01)
            return index

    loader = DataLoader(Numbers(), batch_size=4, shuffle=True)
    epochs = 0
    while not os.path.exists(os.environ["ENOUGH"]):
        seen = sorted(int(index) for batch in loader for index in batch)
        assert seen == list(range(120)), seen
        epochs += 1
    print("each sample once in", epochs, "epochs", flush=True)
    """
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]


def says(plane: ControlPlane, pod: str, text: str) -> bool:
    return text in plane.kubectl("logs", f"{pod}-0-0", check=False)


def owners(plane: ControlPlane) -> list[str]:
    found = plane.get("services", "penstock-share-both")["metadata"]["ownerReferences"]
    return [one["name"] for one in found]


def test_data_workers_of_one_member_serve_both_and_its_end_ends_no_other(
    plane: ControlPlane, tmp_path: Path
) -> None:
    enough = {name: tmp_path / name for name in ("rich", "poor")}
    for name, path in enough.items():
        job = job_manifest(name, script(PROGRAM))
        worker = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        worker["containers"][0]["env"] = [{"name": "ENOUGH", "value": str(path)}]
        container = {"name": "main", "image": "penstock/examples", "command": DATA_WORKER}
        job["spec"]["input"] = {"share": {"group": "both"}}
        if name == "rich":
            template = {"spec": {"containers": [container]}}
            job["spec"]["replicaSpecs"]["dataWorker"] = {"replicas": 1, "template": template}
        else:  # it has none of its own, and gets none
            job["spec"]["input"]["offload"] = "Never"
        job["spec"]["optimize"] = "Manual"
        plane.apply(job)
    for name in enough:
        until(partial(says, plane, "rich-data-worker", f"serving {name}-worker-0-0"))
    assert set(owners(plane)) == set(enough)

    enough["rich"].touch()
    plane.wait_for("rich", "Succeeded", 55)
    plane.kubectl("delete", "ej", "rich")
    until(lambda: owners(plane) == ["poor"])
    enough["poor"].touch()
    plane.wait_for("poor", "Succeeded", 55)
    assert says(plane, "poor-worker", "each sample once")
    plane.kubectl("delete", "ej", "poor")
    selector = "penstock.dev/share-group=both"
    until(lambda: not plane.get("services", selector=selector)["items"])
