"""A local worker keeps the memory of one batch for the next, as data workers do."""

from __future__ import annotations

import resource
from typing import Any

import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.allocator import ALLOCATOR
from penstock.data.torch_loading.torch_loader import DataLoader

ARRAYS = 8
BYTES = 4 << 20
SETTLED = 10
"""Samples before that: the allocator has seen how much there is."""


class Working(torch_data.Dataset[torch.Tensor]):
    """Samples that take some large arrays at once, as a chain of layers does."""

    def __len__(self) -> int:
        return 2 * SETTLED

    def __getitem__(self, index: int) -> torch.Tensor:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [torch.full((BYTES // 4,), float(index)) for _ in range(ARRAYS)]
        del arrays
        return torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def test_large_arrays_of_a_worker_have_the_memory_of_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    faults: list[Any] = [int(one) for one in DataLoader(Working(), batch_size=1, num_workers=1)]
    pages = ARRAYS * BYTES // resource.getpagesize()
    assert max(faults[:SETTLED]) > 0  # they are counted
    assert max(faults[SETTLED:]) < pages / 10
