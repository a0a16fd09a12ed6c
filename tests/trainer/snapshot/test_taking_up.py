"""A state that is taken up is copied no more than needed, and nobody else's afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.job.protocol import DataSpec
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.snapshot.keeper import MEMORY, SnapshotKeeper
from penstock.trainer.snapshot.memory import SnapshotMemory
from penstock.trainer.training_state import TrainingState
from tests.trainer.snapshot.test_memory import ROOMY

DATA = DataSpec(dataset_size=8, global_batch=4, epochs=1, slots_per_step=1)
MEGABYTES = 96


@pytest.fixture
def keeper() -> Iterator[SnapshotKeeper]:
    made = SnapshotKeeper()
    yield made
    made.close()


def memory_of(keeper: SnapshotKeeper) -> SnapshotMemory:
    return SnapshotMemory(keeper.path, lambda: ROOMY)


class Keeping:
    """A program's own object that keeps the very tensor that it loads."""

    def __init__(self, value: float) -> None:
        self.tensor = torch.full((1000,), value)

    def state_dict(self) -> dict[str, Any]:
        return {"tensor": self.tensor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensor = state["tensor"]


def training(folder: CheckpointDir, value: float) -> tuple[TrainingState, dict[str, Any]]:
    model = torch.nn.Linear(20, 30)
    torch.nn.init.constant_(model.weight, value)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    holders = {"model": model, "optimizer": optimizer, "mine": Keeping(value)}
    return TrainingState(holders, DATA, folder), holders


def step(holders: dict[str, Any]) -> None:
    holders["model"](torch.ones(3, 20)).square().sum().backward()
    holders["optimizer"].step()
    holders["optimizer"].zero_grad()
    holders["mine"].tensor += 1


def flat(holders: dict[str, Any]) -> torch.Tensor:
    adam = holders["optimizer"].state_dict()["state"].values()
    moments = [each[name].flatten() for each in adam for name in ("exp_avg", "exp_avg_sq", "step")]
    weights = [each.detach().flatten() for each in holders["model"].parameters()]
    return torch.cat([*weights, *moments, holders["mine"].tensor])


def test_what_is_taken_up_out_of_memory_is_the_programs_own(
    tmp_path: Path, keeper: SnapshotKeeper
) -> None:
    first = CheckpointDir(tmp_path, memory=memory_of(keeper))
    state, holders = training(first, 2.0)
    state.begin()
    for _ in range(3):
        step(holders)
    state.save(to_disk=False)
    first.wait()
    wanted = flat(holders).clone()
    first.close()

    memory = memory_of(keeper)
    second = CheckpointDir(tmp_path, memory=memory)
    state, others = training(second, 5.0)
    state.begin()
    assert torch.equal(flat(others), wanted)
    assert not memory._loans.slots()
    for _ in range(4):
        step(holders)
        step(others)
        assert torch.equal(flat(others), flat(holders))
        state.save(to_disk=False)
        second.wait()


def test_a_slot_whose_bytes_somebody_keeps_is_left_alone(
    tmp_path: Path, keeper: SnapshotKeeper
) -> None:
    folder = CheckpointDir(tmp_path, memory=memory_of(keeper))
    folder.save(1, {"weights": torch.full((100,), 1.0)}, to_disk=False)
    folder.wait()
    folder.close()
    memory = memory_of(keeper)
    folder = CheckpointDir(tmp_path, memory=memory)
    restored = folder.stored.restore(lend=True)
    assert restored is not None
    assert restored.lent
    kept = restored.state["weights"].view(10, 10)[1:]
    del restored
    used = []
    for number in range(2, 6):
        folder.save(number, {"weights": torch.full((100,), float(number))}, to_disk=False)
        folder.wait()
        found = memory.read()
        assert found is not None
        assert found[0].step == number
        used.append(found[0].slot)
        del found
    assert used == [1, 1, 1, 1]
    assert torch.equal(kept, torch.full((9, 10), 1.0))
    del kept
    for number in range(6, 8):
        folder.save(number, {"weights": torch.full((100,), float(number))}, to_disk=False)
        folder.wait()
        found = memory.read()
        assert found is not None
        used.append(found[0].slot)
        del found
    assert used[4:] == [0, 1]


PROGRAM = textwrap.dedent(
    """
    import json, re, sys, torch
    from pathlib import Path
    from penstock.job.protocol import DataSpec
    from penstock.trainer.checkpoint import CheckpointDir
    from penstock.trainer.training_state import TrainingState

    def peak():
        return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

    folder, kind, megabytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    parts = {"sgd": 1, "adam": 3}[kind]
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # its libraries
    base = peak()
    count = (megabytes << 18) // parts // 8
    model = torch.nn.ParameterList(torch.zeros(count) for _ in range(8))
    fresh = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind](model.parameters(), lr=0.1)
    data = DataSpec(dataset_size=8, global_batch=4, epochs=1, slots_per_step=1)
    checkpoints = CheckpointDir(folder)
    state = TrainingState({"model": model, "optimizer": fresh}, data, checkpoints)
    state.begin()
    found = peak() - base
    begun = state.committed
    if not begun:
        for parameter in model:
            parameter.grad = torch.ones(count)
        fresh.step()
        fresh.zero_grad()
        state.committed = 1
        state.save(last=True)
        checkpoints.wait()
    checkpoints.close()
    numbers = sum(float(each.detach().double().sum()) for each in model)
    print(json.dumps({"step": begun, "peak": found / (megabytes << 20), "numbers": numbers}))
    """
)


OF_A_PEER = textwrap.dedent(
    """
    import json, re, sys, torch
    from pathlib import Path
    from penstock.job.protocol import DataSpec
    from penstock.trainer.group.state_codec import receive, send
    from penstock.trainer.training_state import TrainingState

    def peak():
        return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

    megabytes = int(sys.argv[1])
    base, count = peak(), (megabytes << 18) // 8
    model = torch.nn.ParameterList(torch.ones(count) for _ in range(8))
    data = DataSpec(dataset_size=8, global_batch=4, epochs=1, slots_per_step=1)
    state = TrainingState({"model": model}, data, None)
    packed, sent = state.export_state(), []
    send(packed, lambda piece: sent.append(piece.numel()), 4 << 20)
    giving = peak() - base
    state.import_state(packed.header, receive(packed.header, torch.Tensor.zero_, 4 << 20))
    size = megabytes << 20
    assert sum(sent) == packed.payload_bytes and not any(bool(each.any()) for each in model)
    print(json.dumps({"giving": giving / size, "taking": (peak() - base) / size}))
    """
)


def run(script: Path, *arguments: str, memory: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", MEMORY: memory},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_memory_when_a_state_is_taken_up_stays_below_2_2_times_the_state(
    tmp_path: Path, keeper: SnapshotKeeper, kind: str
) -> None:
    """Shared memory included: the program's own state, and what it is read from."""
    script = tmp_path / "begin.py"
    script.write_text(PROGRAM)
    arguments = (str(tmp_path / "saved"), kind, str(MEGABYTES))
    first = run(script, *arguments, memory=keeper.path)
    assert first["step"] == 0
    of_memory = run(script, *arguments, memory=keeper.path)
    of_disk = run(script, *arguments, memory="")
    assert of_memory["step"] == of_disk["step"] == 1
    assert of_memory["numbers"] == of_disk["numbers"] == first["numbers"]
    assert of_memory["peak"] < 2.2, of_memory
    assert of_disk["peak"] < 2.2, of_disk


@pytest.mark.slow
def test_a_state_of_another_member_takes_no_more_memory_than_both_need(tmp_path: Path) -> None:
    """Who gives has its own, who takes its own and what it has received, and a piece beside."""
    script = tmp_path / "peer.py"
    script.write_text(OF_A_PEER)
    found = run(script, str(MEGABYTES), memory="")
    assert found["giving"] < 1.3, found
    assert found["taking"] < 2.2, found
