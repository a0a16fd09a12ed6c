"""Errors that are hard to carry reach the program as from PyTorch's own workers, and once."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
from torch.utils import data as torch_data

from penstock.data.local import workers
from penstock.data.torch_loading.torch_loader import DataLoader

BAD = 13


class SilentError(Exception):
    """One whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


ERRORS = {
    "a text that is no UTF-8": ValueError("no picture caf\udce9.jpg"),
    "a text of 70 MB": ValueError("no" * (35 << 20)),
    "no text": SilentError(),
    "a key": KeyError("path"),
}


class Raising(torch_data.Dataset[int]):
    """One sample raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == BAD:
            raise self.error
        return index


class Closing(Raising):
    """One sample closes all that its process has open, as what becomes a daemon does."""

    def __getitem__(self, index: int) -> int:
        if index == BAD:
            os.closerange(3, 1024)
        return index


def load(kind: type[Any], dataset: Any) -> tuple[list[int], Exception]:
    got: list[int] = []
    loader = kind(dataset, batch_size=2, num_workers=2, timeout=40)
    with pytest.raises(Exception) as caught:
        got.extend(sample for batch in loader for sample in batch.tolist())
    return got, caught.value


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_they_are_those_of_pytorch(error: Exception) -> None:
    (ours, raised), (theirs, as_alone) = (
        load(kind, Raising(error)) for kind in (DataLoader, torch_data.DataLoader)
    )
    assert ours == theirs == list(range(12))
    assert type(raised) is type(as_alone) is type(error)
    if not isinstance(error, SilentError):
        lines, wanted = str(raised).splitlines(), str(as_alone).splitlines()
        assert lines[0][:40] == wanted[0][:40]
        assert len(lines) >= len(wanted) - 1
        assert lines[-1][-6:].isascii()


def test_a_worker_that_has_closed_its_connection_is_lost_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "END_SECONDS", 0.2)  # what it is given to end by itself
    gc.collect()  # what PyTorch shares of earlier tests ends a process that has closed it
    got, error = load(DataLoader, Closing(ValueError()))
    assert got == list(range(12))
    assert "samples [12, 13]: 3 workers died" in str(error)
