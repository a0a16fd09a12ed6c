"""`penstock checkpoint export`: plain `torch.distributed.checkpoint` reads what it writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.nn import functional
from typer.testing import CliRunner

from penstock.trainer import elastic
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_commands import checkpoint
from penstock.trainer.checkpoint_export import export
from penstock.trainer.checkpoint_file import CheckpointError
from penstock.trainer.group.sharding import MARK
from tests.patience import patient

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def trained(folder: Path) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, optimizer = make()
    session = elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=40,
        global_batch=10,
        epochs=1,
        checkpoint_dir=folder,
        checkpoint_every_steps=2,
    )
    with session:
        for number, step in enumerate(session, 1):
            for micro in step:
                features = torch.ones(len(micro.indices), 4) * micro.indices[:, None]
                micro.backward(functional.mse_loss(model(features), features[:, :2]))
            step.commit()
            if number == 3:  # copied beside that step; where the disk is behind the next is taken
                _wait_for(folder / "step-000000000002.penstock")
    return model, optimizer


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + patient(10)
    while not file.exists():
        assert time.monotonic() < deadline, f"no {file.name}"
        time.sleep(0.01)


def read_by_dcp(target: Path | str) -> tuple[nn.Module, torch.optim.Optimizer, int]:
    """As a program does that knows nothing of Penstock."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # has a state to be filled
    state: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 0,
    }
    load(state, checkpoint_id=target, no_dist=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return model, optimizer, state["step"]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_plain_dcp_reads_model_optimizer_and_step(tmp_path: Path) -> None:
    model, optimizer = trained(tmp_path / "own")
    done = CliRunner().invoke(checkpoint, ["export", str(tmp_path / "own"), str(tmp_path / "dcp")])
    assert (done.exit_code, done.output) == (0, f"step 4: {tmp_path / 'dcp'}\n")
    theirs, their_optimizer, step = read_by_dcp(tmp_path / "dcp")
    assert step == 4
    assert same(theirs.state_dict(), model.state_dict())
    assert same(their_optimizer.state_dict(), optimizer.state_dict())


def test_an_older_step_and_a_file_by_name(tmp_path: Path) -> None:
    trained(tmp_path / "own")
    assert export(tmp_path / "own", str(tmp_path / "second"), 2) == 2
    assert read_by_dcp(tmp_path / "second")[2] == 2
    file = tmp_path / "own/step-000000000002.penstock"
    assert export(file, str(tmp_path / "file")) == 2


def test_a_damaged_one_gives_way_to_the_one_before(tmp_path: Path) -> None:
    trained(tmp_path / "own")
    newest = tmp_path / "own/step-000000000004.penstock"
    content = bytearray(newest.read_bytes())
    content[-100] ^= 1
    newest.write_bytes(content)
    assert export(tmp_path / "own", str(tmp_path / "dcp")) == 2
    with pytest.raises(CheckpointError, match="the checksum does not match"):
        export(tmp_path / "own", str(tmp_path / "other"), 4)


def test_the_parts_of_a_sharded_model_are_put_together(tmp_path: Path) -> None:
    whole, other = torch.arange(28.0).reshape(7, 4), torch.arange(3.0)
    for rank, rows in enumerate(((0, 4), (4, 7))):
        sharded = {"mesh": 0, "shape": [7, 4], "stride": [4, 1], "placements": [["shard", 0]]}
        copied = {"mesh": 0, "shape": [3], "stride": [1], "placements": [["replicate"]]}
        model = {"w": {MARK: whole[slice(*rows)], **sharded}, "b": {MARK: other, **copied}}
        state = {"step": 5, "holders": {"model": model, "optimizer": {"state": {}}}}
        folder = CheckpointDir(tmp_path / f"own/part-{rank}-of-2")
        folder.save(5, state, wait=True)
    assert export(tmp_path / "own", str(tmp_path / "dcp")) == 5
    loaded = {"model": {"w": torch.zeros(7, 4), "b": torch.zeros(3)}}
    load(loaded, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert torch.equal(loaded["model"]["w"], whole)
    assert torch.equal(loaded["model"]["b"], other)
    (tmp_path / "own/part-0-of-2").rename(tmp_path / "away")
    with pytest.raises(CheckpointError, match=r"parts \[1\] of 2 are there: all are needed"):
        export(tmp_path / "own", str(tmp_path / "again"))


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(checkpoint, ["export", str(tmp_path), str(tmp_path / "dcp")])
    assert done.exit_code == 1
    assert "no checkpoint of a session is there" in done.output
    done = CliRunner().invoke(checkpoint, ["export", str(tmp_path / "none"), "x"])
    assert "none: no such file or folder" in done.output
    CheckpointDir(tmp_path).save(1, {"weights": torch.ones(3)}, wait=True)
    with pytest.raises(CheckpointError, match="not a checkpoint of a session"):
        export(tmp_path, str(tmp_path / "dcp"))


def test_a_url_is_written_by_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    trained(tmp_path / "own")
    assert export(tmp_path / "own", f"file://{tmp_path}/by-url") == 4
    assert read_by_dcp(tmp_path / "by-url")[2] == 4
