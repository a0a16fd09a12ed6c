"""A share of batches that is forced on data workers, for measurements."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.memory import NO_LIMIT_BYTES, Memory
from penstock.data.queue.assignment import assign_share, divides, is_remote
from penstock.data.queue.batch_queue import BatchQueue, Counts, QueueOptions
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.window.reorder_buffer import Failure, ReorderBuffer


@dataclass(eq=False)
class Maker:
    name: str
    local: bool
    batch_seconds: float | None = None


HERE, THERE = Maker("here", True), Maker("there", False)
STEPS = 60


class Dividing:
    """A queue of some steps, and two makers that make what they are asked for."""

    def __init__(self, share: float | None, makers: tuple[Maker, ...] = (HERE, THERE)) -> None:
        self.makers = cast("list[WorkerConnection]", list(makers))
        options = QueueOptions(key=b"k", seed=1, share=share)
        self.queue = BatchQueue(threading.Condition(), Counts(), 1, options)
        self.window = cast("ReorderBuffer", self.queue.window)
        for step in range(STEPS):
            self.window.feed([step])
        self.window.end()
        self.held: list[tuple[str, int]] = []

    def ask(self) -> None:
        self.queue.bind(len(self.makers), Memory(NO_LIMIT_BYTES, NO_LIMIT_BYTES), 0)
        for link, asked in assign_share(self.queue, self.makers).items():
            self.held += [(link.name, step) for step, _ in asked]


@given(st.floats(0, 1), st.integers(1, 500))
def test_of_any_number_of_first_steps_a_share_is_remote(share: float, steps: int) -> None:
    remote = sum(is_remote(step, share) for step in range(steps))
    assert abs(remote - share * steps) < 1 + 1e-6


@given(st.floats(0, 1), st.data())
def test_every_step_is_made_once_on_its_side_in_whatever_order_they_come(
    share: float, data: st.DataObject
) -> None:
    dividing = Dividing(share)
    made: dict[int, str] = {}
    while len(made) < STEPS:
        dividing.ask()
        assert dividing.held, "nobody has anything to do, and not all is made"
        holder, step = dividing.held.pop(data.draw(st.integers(0, len(dividing.held) - 1)))
        assert dividing.window.arrived(holder, step, step)
        made[step] = holder
        while dividing.window.position in made:
            assert dividing.window.take()[0] is None
    assert {step for step, name in made.items() if name == "there"} == {
        step for step in range(STEPS) if is_remote(step, share)
    }


def test_what_a_data_worker_could_not_make_goes_to_a_local_one() -> None:
    dividing = Dividing(1.0)
    dividing.ask()
    assert {name for name, _ in dividing.held} == {"there"}
    dividing.window.failed(0, Failure("there", "no such file", ""))
    dividing.held.clear()
    dividing.ask()
    assert ("here", 0) in dividing.held


def test_a_share_is_forced_only_where_there_are_two_sides() -> None:
    assert divides(Dividing(0.5).queue, Dividing(0.5).makers)
    for share, makers in ((None, (HERE, THERE)), (0.5, (HERE,)), (0.5, (THERE,)), (0.5, ())):
        dividing = Dividing(share, makers)
        assert not divides(dividing.queue, dividing.makers)


SCRIPT = textwrap.dedent(
    """
    import hashlib, os, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Noise(Dataset):
        def __len__(self):
            return 160

        def __getitem__(self, index):
            time.sleep(0.002)
            return torch.rand(16) + index

    order = torch.Generator()
    loader = DataLoader(Noise(), batch_size=4, shuffle=True, generator=order, num_workers=1)

    def epoch():
        order.manual_seed(1)
        before = pool_of_worker().counts.arrived
        digest = hashlib.sha256()
        for batch in loader:
            digest.update(batch.numpy().tobytes())
        return digest.hexdigest(), pool_of_worker().counts.arrived - before

    def pool_of_worker():
        from penstock.data.consuming.process import consumer_of_process
        return consumer_of_process().pool

    until = time.monotonic() + 60
    while epoch()[1] < 10:  # the data worker is at work
        assert time.monotonic() < until, "no data worker came"
    for share in ("0", "0.3", "1"):
        os.environ["PENSTOCK_DATA_SHARE"] = share
        print(share, *epoch())
    """
)


@pytest.mark.slow
def test_no_share_changes_a_bit(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    penstock = Path(sys.executable).with_name("penstock")
    done = subprocess.run(
        [penstock, "run", "--data-workers", "1", "--", sys.executable, str(script)],
        env={key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [share for share, _, _ in lines] == ["0", "0.3", "1"]
    assert len({digest for _, digest, _ in lines}) == 1
    assert [int(arrived) for _, _, arrived in lines] == [0, 12, 40]
