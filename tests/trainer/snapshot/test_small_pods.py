"""A training that just fits its pod is not killed by its checkpoints."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.data.memory import Memory
from penstock.trainer import checkpoint
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import CheckpointError, read
from penstock.trainer.group.state_codec import host_pieces, lend, pack, tensor_bytes
from penstock.trainer.snapshot.lent import Lent, WithdrawnError
from penstock.trainer.snapshot.memory import SnapshotMemory
from tests.data.planes import eventually
from tests.memory_group import memory_group
from tests.trainer.group.line import payload
from tests.trainer.small_disk import fill, small_disk

MEGABYTE = 1 << 20
FULL = Memory(free=0, limit=1 << 30)
STATE_MEGABYTES = 120
STEP_MEGABYTES = 80


def folder_of(path: Path, **options: Any) -> CheckpointDir:
    """Of a pod that has no memory to spare."""
    return CheckpointDir(path, memory=SnapshotMemory(measure=lambda: FULL), **options)


def state(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "weights": torch.arange(3000.0).reshape(3, 1000).t() + step,
        "scalar": torch.tensor(float(step), dtype=torch.bfloat16),
    }


def holds(path: Path, step: int) -> bool:
    found: dict[str, Any] = read(path)
    wanted = state(step)
    return bool(found["step"] == step) and all(
        torch.equal(found[name], wanted[name]) for name in ("weights", "scalar")
    )


def test_without_memory_for_a_copy_the_file_is_the_same_and_this_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of(tmp_path / "full")
    CheckpointDir(tmp_path / "roomy", keep=4).save(1, state(1), wait=True)
    for step in (1, 2, 3):
        weights = state(step)
        folder.save(step, weights)
        weights["weights"].zero_()  # by the next step
        folder.wait()
        assert holds(folder.list()[0].path, step)
    name = "step-000000000001.penstock"
    assert (tmp_path / "full" / name).read_bytes() == (tmp_path / "roomy" / name).read_bytes()
    said = [record.getMessage() for record in caplog.records if "while the training" in record.msg]
    assert len([text for text in caplog.messages if "while the training waits" in text]) == 1, said


def test_what_is_for_memory_alone_is_left_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.save(1, state(1), to_disk=False)
    folder.wait()
    assert folder.list() == []


def test_while_another_is_written_a_state_is_left_out_but_for_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, mended, whole = threading.Event(), threading.Event(), checkpoint.write

    def slow(path: Path, packed: Any, lent: Lent | None) -> None:
        begun.set()
        assert mended.wait(30)
        whole(path, packed, lent)

    now = Memory(1 << 30, 1 << 20)  # for a copy, and not for slots
    folder = CheckpointDir(tmp_path, memory=SnapshotMemory(measure=lambda: now))
    monkeypatch.setattr(checkpoint, "write", slow)
    folder.save(1, state(1))
    assert begun.wait(30)
    now = FULL
    for step in (2, 3):
        folder.save(step, state(step))
    [text] = [text for text in caplog.messages if "left out" in text]
    assert "step 2 is left out" in text
    last = state(4)
    folder.save(4, last, last=True)
    mended.set()
    folder.wait()
    assert [saved.step for saved in folder.list()] == [4, 1]
    assert holds(folder.list()[0].path, 4)


@pytest.mark.parametrize("waiting", [False, True], ids=["nothing waits", "another waits"])
def test_where_a_state_is_left_out_the_one_before_it_is_still_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: bool
) -> None:
    begun, ends, mended = threading.Event(), threading.Event(), threading.Event()
    whole = checkpoint.write

    def full(path: Path, packed: Any, lent: Lent | None) -> None:
        begun.set()
        assert ends.wait(30)
        if not mended.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(path, packed, lent)

    now = Memory(1 << 30, 1 << 20)  # for a copy, and not for slots
    memory = SnapshotMemory(measure=lambda: now)
    folder = CheckpointDir(tmp_path, memory=memory, retry_seconds=(0.02,))
    monkeypatch.setattr(checkpoint, "write", full)
    folder.save(1, state(1))
    assert begun.wait(30)
    if waiting:
        folder.save(2, state(2))
    now = FULL
    folder.save(3, state(3))
    ends.set()
    eventually(lambda: "No space left on device" in folder.trouble)
    mended.set()
    folder.wait()
    assert [saved.step for saved in folder.list()] == [1]
    assert holds(folder.list()[0].path, 1)
    assert folder.trouble == ""


def test_a_disk_that_takes_nothing_does_not_hold_the_training_and_leaves_nothing_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended, ended, whole = threading.Event(), threading.Event(), checkpoint.write

    def hanging(path: Path, packed: Any, lent: Lent | None) -> None:
        assert mended.wait(30)
        try:
            whole(path, packed, lent)
        except WithdrawnError:
            ended.set()
            raise

    monkeypatch.setattr(checkpoint, "write", hanging)
    folder = folder_of(tmp_path, write_seconds=0.2)
    folder.save(1, state(1))
    assert "the disk takes too little" in folder.trouble
    mended.set()
    assert ended.wait(30)
    eventually(folder._is_idle)
    assert folder.list() == []
    assert not list(tmp_path.glob(".*.tmp"))
    folder.save(2, state(2))
    folder.wait()
    assert [saved.step for saved in folder.list()] == [2]
    assert folder.trouble == ""


def test_a_full_disk_is_told_and_the_next_checkpoint_is_tried(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        folder = folder_of(disk, retry_seconds=(0.02,), write_seconds=5.0)
        folder.save(1, state(1))
        folder.wait()
        filler = fill(disk)
        folder.save(2, state(2))
        assert "No space left on device" in folder.trouble
        threading.Timer(0.2, filler.unlink).start()
        last = state(3)
        folder.save(3, last, last=True)  # tried again until there is room
        folder.wait()
        assert folder.trouble == ""
        assert [saved.step for saved in folder.list()] == [3, 1]
        assert holds(folder.list()[0].path, 3)


def test_a_trained_model_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        fill(disk)
        folder = folder_of(disk, retry_seconds=(0.02,), write_seconds=0.2)
        with pytest.raises(CheckpointError, match=r"model is not on disk .* No space left"):
            folder.save(1, state(1), wait=True)


@pytest.mark.parametrize("most", [1, 7, 64, 1000, 1 << 20])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(60.0).reshape(3, 4, 5),
        torch.arange(60).reshape(3, 4, 5).permute(2, 0, 1),
        torch.arange(60.0)[::2],
        torch.arange(8.0).expand(3, 8),
        torch.tensor(3.0, dtype=torch.bfloat16),
        torch.empty(0, 3),
        torch.arange(600).to(torch.uint8).reshape(1, 1, 600),
    ],
)
def test_a_tensor_in_pieces_is_the_tensor(tensor: torch.Tensor, most: int) -> None:
    pieces = list(host_pieces(tensor, most))
    assert all(0 < piece.numel() <= max(most, tensor.element_size()) for piece in pieces)
    joined = torch.cat([torch.empty(0, dtype=torch.uint8), *pieces])
    assert torch.equal(joined, tensor_bytes(tensor.contiguous().clone()))


def test_a_state_goes_to_others_as_its_copy_would() -> None:
    assert torch.equal(payload(lend(state(1))), payload(pack(state(1))))
    assert lend(state(1)).header == pack(state(1)).header


PROGRAM = textwrap.dedent(
    """
    import json, re, sys, torch
    from pathlib import Path
    from penstock.data.memory import Memory, read_memory
    from penstock.trainer.checkpoint import CheckpointDir
    from penstock.trainer.snapshot.memory import SnapshotMemory

    def said(name):
        text = Path("/proc/self/status").read_text()
        return int(re.search(rf"{name}:\\s+(\\d+)", text)[1]) << 10

    def peak():
        return said("VmHWM")

    folder = Path(sys.argv[1])
    state_bytes, step_bytes, limit, every = map(int, sys.argv[2:6])
    state = {str(n): torch.zeros(1 << 20) for n in range(state_bytes >> 22)}

    def step():
        activations = [torch.ones(1 << 20) for _ in range(step_bytes >> 22)]
        for tensor in state.values():
            tensor.add_(1)

    step()
    before = peak()
    # The limit is above what the training needs by so much.
    of_pod = lambda: Memory(before + limit - said("VmRSS"), before + limit)
    memory = SnapshotMemory(measure=of_pod) if limit else None
    saves = CheckpointDir(folder, memory=memory)
    for number in range(1, 9):
        step()
        if every and number % every == 0:
            saves.save(number, state, last=number == 8)
    saves.wait()
    step()
    steps = [one.step for one in saves.list()]
    own = peak() - said("RssFile")  # files are charged to whoever read them first, and given up
    print(json.dumps({"own": own, "more": peak() - before, "steps": steps}))
    saves.close()
    """
)


def program(folder: Path, state: int, step: int, beside: int = 0, every: int = 2) -> list[str]:
    """The command of it; megabytes, and steps between checkpoints."""
    script = folder / "train.py"
    script.write_text(PROGRAM)
    sizes = (str(size * MEGABYTE) for size in (state, step, beside))
    return [sys.executable, str(script), str(folder / "saved"), *sizes, str(every)]


def trained(*command: str) -> dict[str, Any]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=55, check=False, env=environment()
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(("beside", "step"), [(40, 80), (90, 0), (90, 80), (300, 80)])
def test_what_a_save_takes_stays_within_what_is_left(
    tmp_path: Path, beside: int, step: int
) -> None:
    """There is room for a copy of the state or not, and a step gives much back or not."""
    found = trained(*program(tmp_path, STATE_MEGABYTES, step, beside))
    assert found["more"] < beside * MEGABYTE
    assert found["steps"][0] == 8


def test_where_there_is_room_states_are_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = CheckpointDir(tmp_path)
    with caplog.at_level(logging.WARNING):
        folder.save(1, state(1), wait=True)
    assert not re.search("waits|left out", caplog.text)


@pytest.mark.slow
@pytest.mark.parametrize("beside", [40, 90])
def test_the_kernel_kills_nobody(tmp_path: Path, beside: int) -> None:
    """The same in a cgroup whose limit is what the training has without checkpoints, and a bit."""
    alone = trained(*program(tmp_path, STATE_MEGABYTES, STEP_MEGABYTES, every=0))
    assert alone["steps"] == []
    with memory_group(alone["own"] + beside * MEGABYTE) as group:
        found = trained(*group.command(*program(tmp_path, STATE_MEGABYTES, STEP_MEGABYTES)))
        assert group.kills() == 0
    assert found["steps"][0] == 8
