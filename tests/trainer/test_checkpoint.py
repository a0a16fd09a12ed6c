"""Checkpoints are whole or passed over: cut, damaged, interrupted and pruned."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
import torch

from penstock.trainer import checkpoint, sealed
from penstock.trainer.checkpoint import CheckpointDir, CheckpointError, read, write
from penstock.trainer.state import StateError, pack


def state(number: int) -> dict[str, object]:
    return {"step": number, "weights": torch.full((3, 5), float(number)), "betas": (0.9, 0.999)}


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    folder = CheckpointDir(tmp_path)
    folder.save(7, state(7), wait=True)
    saved = folder.newest()
    assert saved is not None
    assert saved.step == 7
    content = read(saved.path)
    assert content["step"] == 7
    assert torch.equal(content["weights"], torch.full((3, 5), 7.0))
    assert content["betas"] == (0.9, 0.999)


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    folder = CheckpointDir(tmp_path, keep=2)
    for step in range(1, 6):
        folder.save(step, state(step), wait=True)
    assert [saved.step for saved in folder.list()] == [5, 4]


def test_damaged_files_of_more_steps_push_out_nothing_newer(tmp_path: Path) -> None:
    folder = CheckpointDir(tmp_path, keep=2)
    damaged = [tmp_path / f"step-{step:012d}.penstock" for step in (20, 30, 40)]
    for path in damaged:
        path.write_bytes(b"cut off")
    for step in (1, 2, 3):
        folder.save(step, {"n": step}, wait=True)
    newest = folder.newest()
    assert newest is not None
    assert [newest.step, *(saved.step for saved in folder.list())] == [3, 40, 30, 20, 3, 2]


def test_the_state_is_that_of_the_call_although_writing_goes_on_in_the_background(
    tmp_path: Path,
) -> None:
    folder = CheckpointDir(tmp_path)
    weights = torch.zeros(1000)
    folder.save(1, {"weights": weights})
    weights += 1
    folder.wait()
    saved = folder.newest()
    assert saved is not None
    assert read(saved.path)["weights"].sum() == 0


def test_a_checkpoint_that_is_cut_at_any_byte_is_passed_over_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = CheckpointDir(tmp_path)
    folder.save(1, state(1), wait=True)
    folder.save(2, state(2), wait=True)
    newest = folder.list()[0].path
    whole = newest.read_bytes()
    for size in range(len(whole)):
        newest.write_bytes(whole[:size])
        caplog.clear()
        found = folder.newest()
        assert found is not None
        assert found.step == 1, f"cut after {size} bytes"
        [record] = caplog.records
        assert str(newest) in record.getMessage()


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "step-000000000001.penstock"
    write(path, pack(state(1)))
    whole = path.read_bytes()
    chance = random.Random(0)
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=path.name):
            read(path)


def test_a_crash_before_the_rename_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointDir(tmp_path)
    folder.save(1, state(1), wait=True)

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sealed.os, "fsync", full_disk)
    folder.save(2, state(2))
    with pytest.raises(CheckpointError, match="No space left on device"):
        folder.wait()
    assert [saved.step for saved in folder.list()] == [1]
    assert not list(tmp_path.glob(".*.tmp")), "the temporary file stayed"


def test_a_disk_that_hangs_is_an_error_after_a_while_and_never_holds_up_a_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mended = threading.Event()
    monkeypatch.setattr(checkpoint, "write", lambda path, packed: mended.wait(30))
    folder = CheckpointDir(tmp_path, write_seconds=0.05)
    folder.save(1, state(1))
    folder.abandon(0.05)
    assert "left while a checkpoint was being written" in caplog.text
    with pytest.raises(CheckpointError, match=r"was not written within 0 s: its disk hangs"):
        folder.wait()
    with pytest.raises(CheckpointError, match="its disk hangs"):
        folder.save(2, state(2))
    mended.set()
    folder.wait()


def test_an_unknown_file_in_the_folder_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-1.penstock").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("x")
    assert CheckpointDir(tmp_path).newest() is None
    assert CheckpointDir(tmp_path / "absent").newest() is None


def test_what_has_no_plain_form_is_refused_with_its_place() -> None:
    with pytest.raises(StateError, match=r"state\.schedule\[1\]: a function has no plain form"):
        pack({"schedule": [1, lambda step: step]})
    with pytest.raises(StateError, match=r"state: the keys of a map"):
        pack({1.5: 1})


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
def test_every_type_of_tensor_survives(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    path = tmp_path / "c"
    write(path, pack({"scalar": tensor[0, 0], "empty": tensor[:0], "tensor": tensor.T}))
    content = read(path)
    assert torch.equal(content["tensor"], tensor.T)
    assert content["tensor"].dtype == dtype
    assert content["scalar"].shape == ()
    assert content["empty"].shape == (0, 3)
