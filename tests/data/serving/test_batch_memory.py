"""Batches that are made where they are delivered are the batches that PyTorch makes."""

from __future__ import annotations

import mmap
import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, default_collate

from penstock.data.serving.batch_memory import BatchMemory, write_rest
from penstock.data.serving.torch_collate import PlacedCollate, place, stack_privately
from penstock.data.transport.batch_codec import Packer, pack

Pair = namedtuple("Pair", "left right")  # noqa: PYI024  as programs write it
TYPES = (torch.float32, torch.uint8, torch.int64, torch.bfloat16, torch.bool, torch.complex64)


def _as_list(batch: Any, *, collate_fn_map: Any) -> Any:
    return list(batch)


def exactly(batch: Any) -> Any:
    """A batch as something that compares by types, bits and strides."""
    if isinstance(batch, torch.Tensor):
        raw = batch.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return (batch.dtype, batch.shape, batch.stride(), raw)
    if isinstance(batch, dict):
        return [(key, exactly(value)) for key, value in batch.items()]
    if isinstance(batch, list | tuple):
        return (type(batch), [exactly(one) for one in batch])
    return batch


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def leaves() -> st.SearchStrategy[Any]:
    """Functions that give the part of a sample that has a number."""
    shapes = st.lists(st.integers(0, 40), max_size=3).map(tuple)

    def tensor(shape: Any, dtype: torch.dtype, turned: bool) -> Any:
        def make(number: int) -> torch.Tensor:
            made = torch.arange(number, number + int(np.prod(shape)), dtype=torch.float32)
            made = made.reshape(shape).to(dtype)
            return made.transpose(0, -1) if turned and len(shape) > 1 else made

        return make

    return st.one_of(
        st.builds(tensor, shapes, st.sampled_from(TYPES), st.booleans()),
        shapes.map(lambda shape: lambda number: np.full(shape, number, np.float64)),
        st.just(lambda number: number),
        st.just(lambda number: number / 3),
        st.just(lambda number: number % 2 == 0),
        st.just(np.int16),
        st.just(lambda number: f"name {number}"),
    )


def samples() -> st.SearchStrategy[Any]:
    """Functions that give the sample of a number."""
    return st.recursive(
        leaves(),
        lambda parts: st.one_of(
            st.lists(parts, min_size=1, max_size=4).map(
                lambda made: lambda number: tuple(one(number) for one in made)
            ),
            st.dictionaries(st.sampled_from("abcd"), parts, min_size=1).map(
                lambda made: lambda number: {key: one(number) for key, one in made.items()}
            ),
            st.tuples(parts, parts).map(
                lambda made: lambda number: Pair(made[0](number), made[1](number))
            ),
        ),
        max_leaves=6,
    )


@given(make=samples(), count=st.integers(1, 40), room=st.sampled_from([0, 1 << 10, 1 << 24]))
def test_it_is_pytorchs_batch_wherever_it_lies(make: Any, count: int, room: int) -> None:
    wanted = default_collate([make(number) for number in range(count)])
    memory, block = BatchMemory(), mmap.mmap(-1, room) if room else None
    with memory.of_batch(lambda size: block, can_share=True):
        batch = PlacedCollate(memory)([make(number) for number in range(count)])
        assert exactly(batch) == exactly(wanted)
        packed, expected = Packer().pack(batch), pack(wanted)
        assert (packed.structure, packed.size) == (expected.structure, expected.size)
        bytes_wanted = b"".join(bytes(memoryview(part).cast("B")) for part in expected.parts)
        if block is not None and packed.size <= room:
            memory.write(packed, block)
            assert block[: packed.size] == bytes_wanted
        elif (descriptor := memory.take_own(packed)) is not None:
            with mmap.mmap(descriptor, packed.size) as delivered:
                assert delivered[:] == bytes_wanted
            os.close(descriptor)


def test_a_large_batch_is_made_in_its_block() -> None:
    block = mmap.mmap(-1, 1 << 20)
    memory = BatchMemory()
    with memory.of_batch(lambda size: block, can_share=False):
        images, labels, masks = PlacedCollate(memory)(
            [(torch.full((3, 50, 50), float(n)), n, np.full((50, 50), n)) for n in range(8)]
        )
    first = np.frombuffer(block, np.uint8).ctypes.data
    assert images.data_ptr() == first
    assert masks.data_ptr() == first + 8 * 30_000 + 8 * 8
    assert not first <= labels.data_ptr() < first + len(block)


def test_what_lies_in_the_wrong_place_is_not_written_over_before_it_is_moved() -> None:
    block = mmap.mmap(-1, 4 * 64)
    inside = np.frombuffer(block, np.uint8)
    inside[:] = np.repeat(np.arange(4, dtype=np.uint8), 64)
    parts = [inside[64:128], inside[0:64], np.full(64, 9, np.uint8), inside[192:256]]
    write_rest(block, pack(parts))
    assert block[:] == b"\1" * 64 + b"\0" * 64 + b"\x09" * 64 + b"\3" * 64


def test_memory_that_is_not_delivered_is_let_go() -> None:
    before = descriptors()
    memory = BatchMemory()
    for _ in range(50):
        unequal = [torch.zeros(100, 100), *[torch.zeros(100, 101)] * 9]
        with (
            memory.of_batch(lambda size: None, can_share=True),
            pytest.raises(RuntimeError, match="equal size"),
        ):
            PlacedCollate(memory)(unequal)
    assert descriptors() == before


def test_a_function_of_the_programs_is_called_as_it_is() -> None:
    kept: list[Any] = []

    def keep(batch: list[Any]) -> Any:
        kept.append(default_collate(batch))
        return kept[-1]

    assert place(keep, BatchMemory()) is keep
    assert isinstance(place(default_collate, BatchMemory()), PlacedCollate)


def test_a_type_that_the_program_has_a_function_for_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = torch.utils.data._utils.collate.default_collate_fn_map
    monkeypatch.setitem(known, Pair, _as_list)
    assert place(default_collate, BatchMemory()) is default_collate


def test_errors_are_pytorchs() -> None:
    odd = [
        [torch.eye(3).to_sparse()] * 3,
        [torch.zeros(2, requires_grad=True), torch.zeros(2)],
        [torch.zeros(2, dtype=torch.float64), torch.zeros(2)],
        [torch.zeros(2), torch.zeros(3)],
    ]
    for batch in odd:
        outcomes = []
        for function in (torch.utils.data._utils.collate.collate_tensor_fn, stack_privately):
            try:
                outcomes.append(repr(function(batch)))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


class Kept(Dataset[Any]):
    """Its collate function mixes each batch with the one before, which it keeps."""

    def __init__(self) -> None:
        self.before: Any = None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((64, 64), float(index))

    def mix(self, batch: list[Any]) -> Any:
        now = default_collate(batch)
        before, self.before = self.before, now
        return now, now.mean() if before is None else before.mean()


def test_batches_that_a_program_keeps_in_a_worker_stay_what_they_are() -> None:
    from penstock.data.torch_loading.torch_loader import DataLoader as Ours

    def means(kind: Any) -> list[float]:
        dataset = Kept()
        loader = kind(dataset, 8, num_workers=1, collate_fn=dataset.mix)
        return [float(before) for _ in range(2) for _, before in loader]

    assert means(Ours) == means(DataLoader)
