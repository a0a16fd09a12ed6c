"""Two iterators of one loader, as with PyTorch."""

from __future__ import annotations

import gc
from typing import Any

import psutil
import pytest
from torch.utils import data as torch_data

from penstock.data.torch_loading.torch_loader import DataLoader
from tests.data.planes import eventually


class Numbers(torch_data.Dataset[int]):
    """The indices."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        return index


KINDS = (DataLoader, torch_data.DataLoader)
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {"num_workers": 0},
    "two": {"num_workers": 2},
    "two that live on": {"num_workers": 2, "persistent_workers": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_loader_zipped_with_itself(options: dict[str, Any]) -> None:
    runs = []
    for kind in KINDS:
        loader = kind(Numbers(), batch_size=2, **options)
        runs.append([(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=False)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_one_that_is_begun_while_another_is_under_way(options: dict[str, Any]) -> None:
    runs = []
    for kind in KINDS:
        loader = kind(Numbers(), batch_size=2, **options)
        first = iter(loader)
        next(first)
        second = iter(loader)
        got = [next(one).tolist() for one in (second, first, second, first)]
        runs.append((got, len(first), len(second), first is second))
        runs[-1][0].extend(one.tolist() for one in first)
    assert runs[0] == runs[1]


def test_its_workers_end_with_the_one_iterator() -> None:
    others = set(psutil.Process().children())
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        batches = iter(loader)
        next(batches)
    assert len(set(psutil.Process().children()) - others) == 2
    del loader, batches
    gc.collect()
    eventually(lambda: not set(psutil.Process().children()) - others)
