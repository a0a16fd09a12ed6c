"""A loop's own checkpoints that a killed process left half written; folders without room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.trainer.callbacks.loop_snapshots import LoopSnapshots
from tests.trainer.small_disk import fill, small_disk


def checkpoint(output: Path, step: int, state: str | None = "{}") -> Path:
    """As the Trainer writes it, to the end or not."""
    folder = output / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    if state is not None:
        (folder / "trainer_state.json").write_text(state)
    return folder


@pytest.mark.parametrize("state", [None, "", '{"global_step": 4'])
def test_a_checkpoint_of_hugging_face_that_was_cut_off_is_passed_over(
    tmp_path: Path, state: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    library = pytest.importorskip("penstock.trainer.callbacks.hugging_face")
    snapshots = library.Snapshots(tmp_path)
    assert snapshots.resume() is None
    checkpoint(tmp_path, 40, state)
    (tmp_path / "checkpoint-best").mkdir()
    assert snapshots.resume() is None
    whole = checkpoint(tmp_path, 9)
    assert snapshots.resume() == str(whole)
    assert "checkpoint-40 is not whole" in caplog.text


def test_a_checkpoint_of_lightning_that_was_cut_off_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = pytest.importorskip("penstock.trainer.callbacks.lightning")
    snapshots = library.Snapshots(tmp_path)
    last, before = tmp_path / "last.ckpt", tmp_path / "step=20.ckpt"
    torch.save({"global_step": 40, "state_dict": {"w": torch.zeros(100)}}, last)
    assert snapshots.resume(last) == str(last)
    whole = last.read_bytes()
    for size in (len(whole) // 2, 0):
        last.write_bytes(whole[:size])
        assert snapshots.resume(last) is None
    torch.save({"global_step": 20}, before)
    assert snapshots.resume(last) == str(before)
    assert "last.ckpt is not whole" in caplog.text
    with pytest.raises(FileNotFoundError):
        snapshots.resume(tmp_path / "nowhere.ckpt")


def save(state: Any) -> Any:
    def write(path: Path) -> None:
        torch.save(state, path)

    return write


def test_what_a_process_before_has_written_goes_before_the_next_is_written(tmp_path: Path) -> None:
    snapshots = LoopSnapshots(tmp_path, 1)
    agents = tmp_path / "step-000000000007.penstock"
    agents.touch()
    for step in (3, 7):
        path = snapshots.write(f"step-{step}.ckpt", save({"step": step}))
        assert path == tmp_path / f"step-{step}.ckpt"
    assert {*tmp_path.glob("step-*")} == {tmp_path / "step-7.ckpt", agents}


def test_a_snapshot_is_written_elsewhere_where_the_loops_folder_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with small_disk(tmp_path / "small", 64) as folder:
        snapshots = LoopSnapshots(folder, 1)
        fill(folder)
        path = snapshots.write("step-3.ckpt", save({"w": torch.ones(100)}))
        assert path is not None
        assert path.is_relative_to(temporary)
        assert torch.equal(torch.load(path)["w"], torch.ones(100))
        assert not (folder / "step-3.ckpt").exists()
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        assert snapshots.write("step-3.ckpt", save({"w": torch.ones(100)})) is None
    assert "nor is there room" in caplog.text
