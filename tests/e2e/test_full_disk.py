"""A job whose folder for checkpoints is full trains on, says so, and ends well given room."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.e2e.control_plane import ControlPlane, Json, job_manifest, needs_kubectl, script, until
from tests.e2e.digits import final_result
from tests.trainer.small_disk import FILLER, fill, small_disk

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

PROGRAM = """
import time
from pathlib import Path

import torch

from penstock.trainer import elastic

folder = Path({folder!r})
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
features = torch.randn(80, 4)
with elastic.session(
    model=model, optimizer=optimizer, dataset_size=80, global_batch=8, epochs=4,
    checkpoint_dir=folder, checkpoint_every_steps=5,
) as session:
    for step in session:
        for micro in step:
            micro.backward(model(features[micro.indices]).square().mean())
        step.commit()
        while step.number == 20 and (folder / {filler!r}).exists():
            time.sleep(0.1)
    session.report()
"""


def storage(job: Json) -> Json:
    """The condition of a job's storage."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "StorageHealthy"), {})


def test_a_full_checkpoint_folder_is_a_condition_and_nothing_is_lost(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "checkpoints", 256) as folder:
        filler = fill(folder)
        text = PROGRAM.format(folder=str(folder), filler=FILLER)
        manifest = job_manifest(
            "full-disk",
            script(text),
            strategy="AllReduce",
            optimize="Manual",
            worker={"replicas": 1, "minReplicas": 1, "maxReplicas": 2},
        )
        plane.apply(manifest)
        until(lambda: storage(plane.get("ej", "full-disk")).get("status") == "False", 50)
        found = storage(yaml.safe_load(plane.kubectl("get", "ej", "full-disk", "-o", "yaml")))
        assert found["reason"] == "CheckpointsNotWritten"
        assert f"no checkpoint is written to {folder}: No space left" in found["message"]
        assert "make room there" in found["message"]
        filler.unlink()
        until(lambda: storage(plane.get("ej", "full-disk")).get("status") == "True", 40)
        plane.wait_for("full-disk", "Succeeded")
        result = final_result(plane, "full-disk")
        assert (result["samples_seen"], result["samples_lost"], result["samples_repeated"]) == (
            320,
            0,
            0,
        )
        assert list(folder.glob("step-000000000040.penstock"))
    events = plane.kubectl("get", "events", "--field-selector=involvedObject.name=full-disk")
    assert events.count("StorageFailing") == 1
    assert events.count("StorageRecovered") == 1
