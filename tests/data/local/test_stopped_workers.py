"""Local workers that somebody stops with a signal and never has go on."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.local import workers
from penstock.data.torch_loading.torch_loader import DataLoader


class Slow(torch_data.Dataset[torch.Tensor]):
    """Samples that tell who made them."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return torch.tensor([index, os.getpid()])


@pytest.mark.parametrize("count", [1, 2])
def test_all_that_are_stopped_are_replaced(
    count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "STOPPED_LOOKS", 2)
    got, stopped = [], set()
    for batch in DataLoader(Slow(), batch_size=1, num_workers=count, timeout=40):
        got.append(int(batch[0, 0]))
        if len(stopped) < count and int(batch[0, 1]) not in stopped:
            stopped.add(int(batch[0, 1]))
            os.kill(int(batch[0, 1]), signal.SIGSTOP)
    assert got == list(range(100))
    assert caplog.text.count("was stopped by a signal") == count
