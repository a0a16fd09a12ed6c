"""Batches that are hard to carry come as from PyTorch's own workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.torch_loading.torch_loader import DataLoader
from penstock.data.transport import frame
from tests.data.planes import same

MANY_BYTES = 90 << 20
"""More than the head of a message may have."""
TENSOR = torch.arange(12.0).reshape(3, 4)
ODD: dict[str, Any] = {
    "a name that is no UTF-8": {"name": "caf\udce9.jpg", "pixels": TENSOR},
    "such a key": {"caf\udce9.jpg": TENSOR},
    "a key above 64 bits": {1 << 70: TENSOR},
    "a key below 64 bits": {-(1 << 65): TENSOR},
}


class Same(torch_data.Dataset[Any]):
    """One sample, several times."""

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.sample


class Streamed(torch_data.IterableDataset[Any]):
    """The same, iterated."""

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __iter__(self) -> Any:
        return iter([self.sample] * 4)


def as_it_is(batch: Any) -> Any:
    return batch


def load(sample: Any, kind: type[Any] = Same, **options: Any) -> list[Any]:
    loader = DataLoader(kind(sample), batch_size=None, collate_fn=as_it_is, **options)
    return list(loader)


@pytest.mark.parametrize("kind", [Same, Streamed])
@pytest.mark.parametrize("sample", ODD.values(), ids=ODD)
def test_what_messages_have_no_form_for_is_pickled(sample: Any, kind: type[Any]) -> None:
    got = load(sample, kind, num_workers=1, timeout=40)
    assert same(got, [sample] * 4)


@pytest.mark.parametrize("kind", [Same, Streamed])
def test_more_bytes_than_a_message_has_in_its_head(kind: type[Any]) -> None:
    sample = [b"\x01" * (MANY_BYTES // 90)] * 90
    got = load(sample, kind, num_workers=1, timeout=40)
    assert len(got) == 4
    assert all(one == sample for one in got)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor() -> None:
    parts = [TENSOR, TENSOR[:2]]
    got = load(torch.nested.nested_tensor(parts), num_workers=1, timeout=40)
    assert all(same(list(one.unbind()), parts) for one in got)


@pytest.mark.parametrize("kind", [Same, Streamed])
def test_what_a_local_worker_cannot_deliver_the_program_makes(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "MAX_BODY_BYTES", 1000)  # workers are forked, and have it too
    monkeypatch.setattr("penstock.data.serving.consumer_connection.PLACED_BYTES", 1 << 40)
    sample = torch.arange(2000.0)
    assert same(load(sample, kind, num_workers=1, timeout=40), [sample] * 4)
