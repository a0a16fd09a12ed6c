"""Snapshots that outlive a training: kept by the agent, taken up again, saved at the breakpoint."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.data.memory import Memory
from penstock.data.spare_memory import Resident, SpareMemory
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import read
from penstock.trainer.group.host_copies import PinnedCopier
from penstock.trainer.group.state_codec import pack
from penstock.trainer.snapshot.keeper import SnapshotKeeper
from penstock.trainer.snapshot.memory import SnapshotMemory
from tests.data.planes import eventually
from tests.trainer.group.test_host_copies import LateTransport
from tests.trainer.small_disk import fill, small_disk

ROOMY = Memory(free=1 << 40, limit=1 << 40)


@pytest.fixture
def keeper() -> Iterator[SnapshotKeeper]:
    made = SnapshotKeeper()
    yield made
    made.close()


def memory_of(keeper: SnapshotKeeper | None, memory: Memory = ROOMY) -> SnapshotMemory:
    return SnapshotMemory(keeper.path if keeper else None, lambda: memory)


def state(number: int) -> dict[str, Any]:
    return {
        "step": number,
        "weights": torch.full((30, 5), float(number)).t(),
        "counts": torch.arange(number),
        "scalar": torch.tensor(float(number), dtype=torch.bfloat16),
    }


def equal(content: Any, number: int) -> bool:
    wanted: dict[str, Any] = state(number)
    return bool(content.keys() == wanted.keys()) and all(
        torch.equal(content[key], value)
        if isinstance(value, torch.Tensor)
        else content[key] == value
        for key, value in wanted.items()
    )


def test_a_state_in_memory_is_taken_up_by_the_process_after(
    tmp_path: Path, keeper: SnapshotKeeper
) -> None:
    first = CheckpointDir(tmp_path, memory=memory_of(keeper))
    first.save(1, state(1), wait=True)
    first.save(2, state(2), to_disk=False)
    first.wait()
    assert [saved.step for saved in first.list()] == [1]
    first.close()  # as the kernel does when a process is killed

    second = CheckpointDir(tmp_path, memory=memory_of(keeper))
    assert second.stored.newest_step() == 2
    restored = second.stored.restore()
    assert restored is not None
    assert (restored.step, restored.place) == (2, "memory")
    assert equal(restored.state, 2)


def test_what_disk_has_that_is_newer_goes_first(tmp_path: Path, keeper: SnapshotKeeper) -> None:
    folder = CheckpointDir(tmp_path, memory=memory_of(keeper))
    folder.save(1, state(1), wait=True)
    CheckpointDir(tmp_path).save(5, state(5), wait=True)  # another worker led meanwhile
    restored = folder.stored.restore()
    assert restored is not None
    assert restored.step == 5
    newest = folder.list()[0].path
    newest.write_bytes(newest.read_bytes()[:-40] + bytes(40))
    restored = folder.stored.restore()
    assert restored is not None
    assert (restored.step, restored.place) == (1, "memory"), "the newer one is damaged"
    assert folder.stored.newest_step() == 1


def test_a_killed_writer_leaves_the_snapshot_before(tmp_path: Path, keeper: SnapshotKeeper) -> None:
    memory = memory_of(keeper)
    folder = CheckpointDir(tmp_path, memory=memory)
    for step in (1, 2):
        folder.save(step, state(step), to_disk=False)
        folder.wait()
    torn = pack(state(3), host=memory)  # copied, never committed
    folder.close()
    found = memory_of(keeper).read()
    assert found is not None
    assert found[0].step == 2
    assert torn.tensors


def test_while_the_disk_keeps_up_one_copy_is_enough(tmp_path: Path, keeper: SnapshotKeeper) -> None:
    memory = memory_of(keeper)
    folder = CheckpointDir(tmp_path, memory=memory)
    used = []
    for step in range(1, 8):
        folder.save(step, state(step), wait=step < 5, to_disk=step < 5)
        folder.wait()
        found = memory.read()
        assert found is not None
        assert found[0].step == step
        used.append(found[0].slot)
    assert used == [0, 0, 0, 0, 0, 1, 0], "what is in memory alone is not overwritten"


def test_at_the_breakpoint_the_agent_saves_what_is_newer_than_the_disk(
    tmp_path: Path, keeper: SnapshotKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    assert keeper.save_newest(5) is None, "nothing was ever kept"
    folder = CheckpointDir(tmp_path, keep=2, memory=memory_of(keeper))
    for step in (1, 2, 3):
        folder.save(step, state(step), wait=True)
    assert keeper.save_newest(5) is None, "the disk has it"
    folder.save(4, state(4), to_disk=False)
    folder.wait()
    with caplog.at_level(logging.INFO):
        path = keeper.save_newest(5)
    assert path is not None
    assert "the state of step 4 was saved from memory" in caplog.text
    assert equal(read(path), 4)
    assert [saved.step for saved in folder.list()] == [4, 3]
    folder.save(4, state(4), wait=True)
    assert path.read_bytes() == folder.list()[0].path.read_bytes()


def test_the_agent_writes_where_the_program_would(
    tmp_path: Path, keeper: SnapshotKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "programs").mkdir()
    monkeypatch.chdir(tmp_path / "programs")
    folder = CheckpointDir(Path("checkpoints"), memory=memory_of(keeper))
    folder.save(1, state(1), to_disk=False)
    folder.wait()
    restored = folder.stored.restore()
    assert restored is not None
    assert restored.place == "memory"
    monkeypatch.chdir(tmp_path)
    assert keeper.save_newest(5) == tmp_path / "programs/checkpoints/step-000000000001.penstock"


def test_at_the_breakpoint_a_full_disk_is_a_line_of_the_log(
    tmp_path: Path, keeper: SnapshotKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        fill(disk)
        folder = CheckpointDir(disk, memory=memory_of(keeper))
        folder.save(1, {"weights": torch.zeros(10_000)}, to_disk=False)
        folder.wait()
        assert keeper.save_newest(5) is None
        assert f"not written to {disk}: No space left on device" in caplog.text


def test_what_comes_from_a_device_is_put_into_memory_by_the_writer(
    tmp_path: Path, keeper: SnapshotKeeper
) -> None:
    copier = PinnedCopier(LateTransport(), lambda: 1 << 20)
    folder = CheckpointDir(tmp_path, copier=copier, memory=memory_of(keeper))
    for step in (1, 2, 3):
        folder.save(step, state(step), to_disk=False)
        folder.wait()
    restored = folder.stored.restore()
    assert restored is not None
    assert (restored.step, restored.place) == (3, "memory")
    assert equal(restored.state, 3)


def test_copies_are_at_most_two_and_used_again(tmp_path: Path) -> None:
    memory = memory_of(None)
    assert not memory.outlives
    seen = set()
    for number in range(1, 8):
        packed = pack(state(number), host=memory)
        seen.add(packed.tensors[0].data_ptr())
        assert torch.equal(packed.tensors[0], state(number)["weights"])
        del packed
    assert len(seen) == 1
    first, second, third = (pack(state(number), host=memory) for number in (1, 2, 3))
    assert len({p.tensors[0].data_ptr() for p in (first, second)} - seen) == 1
    assert torch.equal(third.tensors[0], state(3)["weights"]), "in fresh memory"


def test_a_state_that_grows_gets_larger_slots_once_nobody_uses_the_old_ones(
    tmp_path: Path, keeper: SnapshotKeeper
) -> None:
    memory = memory_of(keeper)
    folder = CheckpointDir(tmp_path, memory=memory)
    for step, size in enumerate((10, 1_000_000, 20), start=1):
        weights = torch.full((size,), float(step))
        folder.save(step, {"weights": weights}, to_disk=False)
        folder.wait()
        restored = folder.stored.restore()
        assert restored is not None
        assert restored.step == step
        assert torch.equal(restored.state["weights"], weights)


@pytest.mark.parametrize("small", [Memory(1 << 40, 1 << 20), Memory(1 << 20, 1 << 40)])
def test_where_the_pod_has_no_room_none_is_kept_in_memory_and_this_is_said_once(
    tmp_path: Path, keeper: SnapshotKeeper, small: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    folder = CheckpointDir(tmp_path, memory=memory_of(keeper, small))
    for step in (1, 2):
        folder.save(step, {"weights": torch.full((500_000,), float(step))}, wait=True)
        assert read(folder.list()[0].path)["weights"].unique().tolist() == [float(step)]
    assert folder.stored.newest_step() == 2
    assert keeper.save_newest(5) is None
    said = [text for text in caplog.messages if "no copies of a state" in text]
    assert len(said) == 1
    assert "no copies of a state of 2 MB are kept in memory" in said[0]
    waits = [text for text in caplog.messages if "while the training waits" in text]
    assert len(waits) == (small.free < 2_000_000)


@pytest.mark.parametrize(
    ("pod", "added"),
    [
        (ROOMY, 3_000_000),
        (Memory(1 << 40, 12_000_000), None),
        (Memory(6_000_000, 60_000_000), None),
    ],
    ids=["added for", "a quarter of the pod", "half of what is free"],
)
def test_where_one_copy_fits_one_is_kept_and_the_next_process_keeps_one_too(
    tmp_path: Path,
    keeper: SnapshotKeeper,
    pod: Memory,
    added: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def one_copy() -> SnapshotMemory:
        held = Path(keeper.path).stat().st_blocks * 512
        now = replace(pod, free=pod.free - held)
        memory = SnapshotMemory(keeper.path, lambda: now, added)
        memory.room = SpareMemory(lambda: now, lambda: Resident(0, 0))
        return memory

    for life in range(2):
        memory = one_copy()
        folder = CheckpointDir(tmp_path, memory=memory)
        for step in (2 * life + 1, 2 * life + 2):
            weights = torch.full((500_000,), float(step))
            folder.save(step, {"weights": weights}, to_disk=False)
            folder.wait()
            restored = folder.stored.restore()
            assert restored is not None
            assert restored.step == step
            assert torch.equal(restored.state["weights"], weights)
        blocks = Path(keeper.path).stat().st_blocks * 512
        assert 2_000_000 < blocks < 3_000_000, "the second slot is never touched"
        memory.close()
    [record] = caplog.records
    assert "one copy of a state of 2 MB is kept in memory" in record.getMessage()


@pytest.mark.parametrize("text", ["0", "many", "-1"])
def test_where_nothing_was_added_states_are_saved_as_before(
    tmp_path: Path,
    keeper: SnapshotKeeper,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PENSTOCK_AGENT_MEMORY", keeper.path)
    monkeypatch.setenv("PENSTOCK_SNAPSHOT_MEMORY", text)
    folder = CheckpointDir(tmp_path)
    folder.save(1, state(1), wait=True)
    folder.close()
    assert equal(read(folder.list()[0].path), 1)
    assert keeper.save_newest(5) is None, "nothing was kept"
    assert Path(keeper.path).stat().st_blocks == 0
    assert "at most 0 MB are used for it" in caplog.text
    assert ("PENSTOCK_SNAPSHOT_MEMORY" in caplog.text) == (text != "0")


def test_when_memory_becomes_short_what_nobody_added_is_given_up(
    tmp_path: Path, keeper: SnapshotKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    now = ROOMY
    folder = CheckpointDir(tmp_path, memory=SnapshotMemory(keeper.path, lambda: now))
    folder.save(1, state(1), wait=True)
    assert Path(keeper.path).stat().st_blocks > 0
    now = Memory(free=ROOMY.limit // 21, limit=ROOMY.limit)
    for step in (2, 3):
        folder.save(step, state(step), wait=True)
        assert equal(read(folder.list()[0].path), step)
    assert Path(keeper.path).stat().st_blocks == 0
    [record] = caplog.records
    assert "the pod's memory is nearly full" in record.getMessage()


def test_memory_has_one_owner_and_forked_processes_are_none(
    tmp_path: Path, keeper: SnapshotKeeper
) -> None:
    owner = memory_of(keeper)
    assert owner.outlives
    assert not memory_of(keeper).outlives, "another session of the pod has it"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # stays until the other end closes
        os._exit(0)
    os.close(reading)
    try:
        owner.close()
        eventually(lambda: memory_of(keeper).outlives)
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_memory_that_cannot_be_opened_is_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = SnapshotMemory(str(tmp_path / "absent"), lambda: ROOMY)
    assert not memory.outlives
    assert "no snapshots are kept by the agent: No such file or directory" in caplog.text
    assert memory.newest_step() is None
    assert memory.read() is None
