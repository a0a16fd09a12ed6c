"""Ends of samples in local workers: the same batches, whoever is killed in the middle."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from penstock.crds import environment as names
from penstock.data.consuming import tail_chooser
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.tail_chooser import TailChooser
from penstock.data.queue.batch_queue import Counts
from penstock.data.torch_loading.torch_loader import DataLoader
from penstock.throughput.decision.tail_choice import TailChoice, TailPhase
from tests.data.cuts.pictures import Pictures, crop, to_array, to_tensor
from tests.data.planes import consumer, end, eventually, freeze, spawn

MOST_EPOCHS = 400
LOADERS = "penstock.data.torch_loading.torch_loader"


def shade(picture: torch.Tensor) -> torch.Tensor:
    """Draws."""
    return picture * torch.rand(1) + random.random()


class Many(Pictures):
    def __init__(self, size: int) -> None:
        super().__init__([crop, to_array, to_tensor, shade])
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index % 64)


def epochs(num_workers: int) -> Iterator[Any]:
    """The epochs of one loader, until somebody has seen enough."""
    torch.manual_seed(3)
    loader = DataLoader(Many(240), batch_size=8, shuffle=True, num_workers=num_workers)
    for _ in range(MOST_EPOCHS):
        yield loader


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each batch cost that a local worker has finished."""
    costs: list[Any] = []
    plain = Counts.add_tail

    def add_tail(self: Counts, cost: Any) -> None:
        costs.append(cost)
        plain(self, cost)

    monkeypatch.setattr(Counts, "add_tail", add_tail)
    return costs


def in_workers(choice: TailChoice, window: Any) -> TailChoice:
    return TailChoice(TailPhase.DONE, in_workers=True)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_local_workers_finish_what_data_workers_begin_and_no_bit_differs(
    kill: bool,
    finished: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(names.DATA_CUT, "shade")
    monkeypatch.setattr(tail_chooser, "watch_tail", in_workers)
    monkeypatch.setattr("penstock.throughput.decision.tail_choice.LEAST_SECONDS", 0.01)
    monkeypatch.setattr("penstock.throughput.decision.tail_choice.LEAST_BATCHES", 1)
    found, killed = [], not kill
    with consumer() as of:
        worker = spawn(of)
        try:
            eventually(lambda: of.workers, 60)
            monkeypatch.setattr(f"{LOADERS}.consumer_of_process", lambda: of)
            for batches in epochs(2):
                epoch = []
                for batch in batches:
                    epoch.append(freeze(batch))
                    if finished and not killed:
                        killed = True
                        kill_local_worker(of)
                found.append(epoch)
                if not finished:
                    time.sleep(0.5)  # each epoch is made a second time, alone
                if len(finished) > 5 and killed:
                    break
        finally:
            end(worker)
    assert killed
    assert len(finished) > 5
    monkeypatch.setattr(f"{LOADERS}.consumer_of_process", lambda: None)
    for epoch, batches in zip(found, epochs(0), strict=False):
        assert epoch == [freeze(batch) for batch in batches]
    assert "is not cut" not in caplog.text


def kill_local_worker(of: Consumer) -> None:
    """One of them, in the middle of whatever it does."""
    with of.pool.makers.lock:
        name = next(one.name for one in of.pool.makers.links.values() if one.local)
    os.kill(int(name.rpartition(" ")[2]), signal.SIGKILL)


def test_a_chooser_counts_what_the_program_spends_with_tails() -> None:
    now = [100.0]
    chooser = TailChooser(clock=lambda: now[0])
    for _ in range(60):
        chooser.look(workers=2)
        with chooser.spent():
            now[0] += 0.12
        now[0] += 0.08
    assert chooser.in_workers
    chooser = TailChooser(clock=lambda: now[0])
    for _ in range(60):
        chooser.look(workers=2)
        now[0] += 40.0  # a validation after each batch
        with chooser.spent():
            now[0] += 0.12
    assert not chooser.in_workers
