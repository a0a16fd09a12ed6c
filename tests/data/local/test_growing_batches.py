"""Batches that become large in the middle of an epoch: what was asked for ahead is taken back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.consuming.process import pool_of_process
from penstock.data.torch_loading.torch_loader import DataLoader
from tests.data.planes import eventually

SMALL = 200
LARGE_BYTES = 32 << 20
WORKERS = 2


class Growing(torch_data.Dataset[torch.Tensor]):
    """Small, quick samples at first, of which many are asked for at once."""

    def __len__(self) -> int:
        return SMALL + 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8 if index < SMALL else LARGE_BYTES // 4,), float(index))


@pytest.mark.parametrize("after", [0, 1])
def test_no_more_large_batches_are_under_way_than_there_is_need_for(after: int) -> None:
    loader = DataLoader(Growing(), batch_size=1, num_workers=WORKERS)
    batches: Any = iter(loader)
    got = [float(next(batches)[0, -1]) for _ in range(SMALL + after)]
    window = batches.stream.queue.window
    links = pool_of_process().makers.links
    eventually(lambda: not any(window.unmade_by(name) for name in list(links)))
    # Two for each who makes them, one that each of them had begun, and the one after that.
    assert window.ready <= 4 * WORKERS
    got += [float(batch[0, -1]) for batch in batches]
    assert got == [float(index) for index in range(SMALL + 60)]
