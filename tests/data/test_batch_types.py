"""Arrays of every type and layout come from a data worker as they are in the program alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data as torch_data

from penstock.data import Loader
from penstock.data.torch_loading import torch_loader
from penstock.data.torch_loading.torch_loader import DataLoader
from tests.data.planes import consumer, eventually, freeze, thread_worker

SIDE = 96
"""Beyond what is copied out, and, of some types, beyond what a digest reads whole."""


def arrays_of(number: int) -> dict[str, np.ndarray[Any, Any]]:
    """One of each kind that NumPy's buffers have a format of their own for, or none."""
    source = np.random.default_rng(number)
    plain = source.normal(size=(SIDE, SIDE))
    found = {
        name: plain.astype(name)
        for name in ("complex64", "complex128", "float16", ">f8", ">i2", ">c8", "?")
    }
    days = source.integers(0, 9999, (SIDE, SIDE))
    return {
        **found,
        "dates": days.astype("M8[D]"),
        "dates, big-endian": days.astype(">M8[s]"),
        "durations": days.astype("m8[ns]"),
        "texts": np.array([["a", "long"], ["", "one"]]),
        "bytes": np.array([b"a", b"bcd"]),
        "no text": np.array(["", ""]),
        "empty": np.zeros((0, 3), np.complex64),
        "number": np.array(number + 1j, np.complex64),
        "date": np.array(number, "M8[s]"),
        "columns": np.asfortranarray(plain.astype(np.complex64)),
        "columns of dates": np.asfortranarray(days.astype("M8[s]")),
        "every other": plain[:, ::2],
        "backwards": plain[::-1].astype(">f4")[:, ::-1],
        "turned": source.normal(size=(4, 5, 6)).transpose(2, 0, 1),
        "one for all": np.broadcast_to(plain[0], (SIDE, SIDE)),
    }


class Kinds:
    """A dataset whose samples are such arrays."""

    def __init__(self, size: int = 12) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        return arrays_of(number)


class Records(Kinds):
    def __getitem__(self, number: int) -> Any:
        return np.full(4, number, [("key", "<i4"), ("value", ">f8")])


class Streamed(torch_data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for number in range(12):
            found = arrays_of(number)
            yield {**found, "tensor": torch.from_numpy(found["complex64"])}


def as_they_are(samples: list[Any]) -> Any:
    return samples


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "shared memory"])
def test_arrays_of_a_map_dataset(tcp: bool) -> None:
    wanted = [freeze(batch) for batch in Loader(Kinds(), 2, seed=3, collate=as_they_are)]
    with consumer(share_memory=not tcp) as mine, thread_worker(mine, tcp=tcp):
        eventually(lambda: mine.workers)
        counts: list[int] = []

        def some_came() -> bool:
            loader = Loader(Kinds(), 2, seed=3, collate=as_they_are, consumer=mine)
            assert [freeze(batch) for batch in loader] == wanted
            counts.append(mine.counts.arrived)
            return counts[-1] > 0

        eventually(some_came)


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "shared memory"])
def test_arrays_of_a_stream_whose_digests_are_compared(
    tcp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [
        freeze(batch) for batch in torch_data.DataLoader(Streamed(), None, collate_fn=as_they_are)
    ]
    with consumer(share_memory=not tcp) as mine, thread_worker(mine, tcp=tcp):
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: mine)
        eventually(lambda: mine.workers)

        def some_came() -> bool:
            assert [
                freeze(batch) for batch in DataLoader(Streamed(), None, collate_fn=as_they_are)
            ] == wanted
            return mine.counts.arrived > 0

        eventually(some_came)


def test_records_are_made_in_the_program_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    wanted = [freeze(batch) for batch in Loader(Records(), 2, seed=3)]
    with consumer() as mine, thread_worker(mine):
        eventually(lambda: mine.workers)

        def was_said() -> bool:
            loader = Loader(Records(), 2, seed=3, consumer=mine)
            assert [freeze(batch) for batch in loader] == wanted
            return "the batch holds an array of dtype" in caplog.text

        with caplog.at_level(logging.WARNING):
            eventually(was_said)
