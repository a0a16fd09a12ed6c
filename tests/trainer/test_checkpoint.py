"""Checkpoints are whole or passed over: cut, damaged, interrupted and pruned."""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.job import atomic_file
from penstock.trainer import checkpoint
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import CheckpointError, read, write
from penstock.trainer.group.state_codec import PackedState, StateError, pack
from penstock.trainer.snapshot.lent import Lent
from tests.data.planes import eventually
from tests.trainer.small_disk import fill, small_disk


def state(number: int) -> dict[str, object]:
    return {"step": number, "weights": torch.full((3, 5), float(number)), "betas": (0.9, 0.999)}


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    folder = CheckpointDir(tmp_path)
    folder.save(7, state(7), wait=True)
    saved = folder.stored.newest()
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
    newest = folder.stored.newest()
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
    saved = folder.stored.newest()
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
        found = folder.stored.newest()
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


def test_what_turns_out_damaged_when_it_is_read_gives_way_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = CheckpointDir(tmp_path)
    folder.save(1, state(1), wait=True)
    folder.save(2, state(2), wait=True)
    path = folder.list()[0].path
    path.write_bytes(path.read_bytes()[:-50] + bytes(50))
    assert folder.stored.newest_step() == 2, "it has the right size"
    restored = folder.stored.restore()
    assert restored is not None
    assert (restored.step, restored.state["step"]) == (1, 1)
    assert folder.stored.newest_step() == 1, "it is known now"
    assert caplog.text.count("the checksum does not match") == 1
    folder.save(2, state(2), wait=True)
    assert folder.stored.newest_step() == 2, "it was written anew"


def test_a_checkpoint_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointDir(tmp_path)
    folder.save(1, big(1), wait=True)
    path, reads = folder.list()[0].path, []
    opened = Path.open

    def counting(self: Path, *arguments: Any, **options: Any) -> Any:
        file = opened(self, *arguments, **options)
        if self != path:
            return file
        readinto = file.readinto

        class Counted:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def readinto(self, room: Any) -> int:
                reads.append(len(room))
                return int(readinto(room))

        return Counted()

    monkeypatch.setattr(Path, "open", counting)
    assert folder.stored.newest_step() == 1
    assert folder.stored.restore() is not None
    assert sum(reads) == 40_000


def big(number: int) -> dict[str, object]:
    return {"step": number, "weights": torch.full((10_000,), float(number))}


def until(ready: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def test_a_full_disk_keeps_the_old_checkpoints_and_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        folder = CheckpointDir(disk, retry_seconds=(0.05,))
        folder.save(1, big(1), wait=True)
        filler = fill(disk)
        for step in (2, 3, 4):
            folder.save(step, big(step))
            until(lambda: folder.trouble)
        assert f"no checkpoint is written to {disk}: No space left on device" in folder.trouble
        [told] = folder.troubles()
        assert told.reason == "CheckpointsNotWritten"
        time.sleep(0.2)  # some attempts
        assert [saved.step for saved in folder.list()] == [1]
        assert read(folder.list()[0].path)["step"] == 1
        filler.unlink()
        folder.wait()
        assert [saved.step for saved in folder.list()] == [4, 1], "only the newest waited"
        assert folder.trouble == ""
        assert not list(disk.glob(".*.tmp")), "a temporary file stayed"
    assert caplog.text.count("No space left on device") == 1, "it is said once"


def test_a_disk_that_stays_full_is_an_error_at_the_end(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        fill(disk)
        folder = CheckpointDir(disk, write_seconds=0.3, retry_seconds=(0.05,))
        folder.save(2, big(2))
        with pytest.raises(
            CheckpointError,
            match=rf"trained model is not on disk in {disk}: No space left on device; make room",
        ):
            folder.wait()
        eventually(lambda: not list(disk.glob(".*.tmp")))  # that of a try under way goes too


def test_a_crash_before_the_rename_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CheckpointDir(tmp_path).save(1, state(1), wait=True)
    folder = CheckpointDir(tmp_path, write_seconds=2.0, retry_seconds=(0.02,))

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_file.os, "fsync", full_disk)
    folder.save(2, state(2))
    with pytest.raises(CheckpointError, match="No space left on device"):
        folder.wait()
    assert [saved.step for saved in folder.list()] == [1]
    eventually(lambda: not list(tmp_path.glob(".*.tmp")))  # that of a try under way goes too


def test_a_disk_that_hangs_holds_up_neither_the_training_nor_a_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, mended = threading.Event(), threading.Event()
    whole = checkpoint.write

    def hanging(path: Path, packed: PackedState, lent: Lent | None) -> None:
        begun.set()
        assert mended.wait(30)
        whole(path, packed, lent)

    monkeypatch.setattr(checkpoint, "write", hanging)
    folder = CheckpointDir(tmp_path, write_seconds=0.05)
    for step in (1, 2, 3):
        folder.save(step, state(step))
        assert begun.wait(30)
    until(lambda: folder.trouble)
    assert f"no checkpoint is written to {tmp_path}: a write is not done within" in folder.trouble
    assert caplog.messages == [], "this one only asks"
    assert [each.message for each in folder.troubles()] == [folder.trouble]
    folder.troubles()
    assert caplog.messages == [folder.trouble]
    with pytest.raises(CheckpointError, match="the disk hangs"):
        folder.wait()
    folder.save(4, state(4))
    mended.set()
    folder.wait()
    assert [saved.step for saved in folder.list()] == [4, 1], "the newest waited"
    assert folder.trouble == ""
    mended.clear()
    folder.save(5, state(5))
    folder.abandon(0.05)
    assert "left while a checkpoint was being written" in caplog.text
    mended.set()


def test_the_mark_of_a_writer_that_still_writes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, mended, whole = threading.Event(), threading.Event(), checkpoint.write

    def hanging(path: Path, packed: PackedState, lent: Lent | None) -> None:
        begun.set()
        assert mended.wait(30)
        whole(path, packed, lent)

    def marks() -> int:
        return len(list(tmp_path.glob(".writer-*.json")))

    monkeypatch.setattr(checkpoint, "write", hanging)
    folder = CheckpointDir(tmp_path)
    folder.save(1, state(1))
    assert begun.wait(30)
    folder.abandon(0.05)
    folder.close()
    assert marks() == 1
    mended.set()
    eventually(folder._is_idle)
    folder.close()
    assert marks() == 0


def test_who_leads_no_longer_leaves_what_it_could_not_write_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    folder = CheckpointDir(tmp_path, retry_seconds=(0.02,))
    with monkeypatch.context() as patch:
        patch.setattr(atomic_file.os, "fsync", full_disk)
        folder.save(1, state(1))
        until(lambda: folder.trouble)
        folder.forget()
        folder.wait()
        assert folder.trouble == ""
    assert folder.list() == []


def test_a_fault_of_the_program_is_no_matter_of_waiting(tmp_path: Path) -> None:
    folder = CheckpointDir(tmp_path)
    with pytest.raises(StateError, match="a function has no plain form"):
        folder.save(1, {"schedule": lambda step: step})
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="it must be a folder in which this program may"):
        CheckpointDir(tmp_path / "file").check_folder()


def test_an_unknown_file_in_the_folder_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-1.penstock").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("x")
    assert CheckpointDir(tmp_path).stored.newest() is None
    assert CheckpointDir(tmp_path / "absent").stored.newest() is None


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


def test_a_folder_that_is_a_file_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    path.touch()
    with pytest.raises(CheckpointError, match="checkpoints: is no folder; it must be a folder in"):
        CheckpointDir(path).check_folder()


def test_no_writer_is_left_that_frees_memory_while_the_interpreter_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_to_free(*arguments: Any) -> PackedState:
        packed = pack(*arguments)
        weakref.finalize(packed, time.sleep, 0.5)
        return packed

    monkeypatch.setattr(checkpoint, "pack", slow_to_free)
    checkpoints = CheckpointDir(tmp_path)
    checkpoints.save(1, {"w": torch.ones(10)})
    checkpoints.wait()
    checkpoints.close()
    assert "penstock-checkpoint" not in [thread.name for thread in threading.enumerate()]
