"""Copies of a state on the host: of the moment they were asked for, in a block that is used again.

A device is stood in for by one that begins copies at once and carries them out when waited for.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import read
from penstock.trainer.group import state_codec
from penstock.trainer.group.cuda_copies import CudaTransport, fits_beside
from penstock.trainer.group.host_copies import (
    ALIGNMENT,
    PinnedCopier,
    Region,
    copy_at_once,
    plan,
    view,
)
from penstock.trainer.group.state_codec import pack
from tests.trainer.group.line import arrived

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


class LateTransport:
    """Takes what tensors hold when copies are begun, and delivers it when it is waited for."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.begun = self.waits = 0
        self.fails = False

    def carries(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def allocate(self, size: int) -> torch.Tensor:
        if self.fails:
            raise RuntimeError("CUDA error: out of memory\nadvice")
        self.allocated.append(size)
        return torch.full((size,), 0xFF, dtype=torch.uint8)

    def begin(self, regions: Sequence[Region]) -> Callable[[], None]:
        self.begun += 1
        taken = [
            (region.host, start, tensor.detach().clone())
            for region in regions
            for tensor, start in region.parts
        ]

        def wait() -> None:
            self.waits += 1
            while taken:
                host, start, tensor = taken.pop()
                view(host, start, tensor).copy_(tensor)

        return wait


def copier_of(transport: LateTransport, most: int = 1 << 20) -> PinnedCopier:
    return PinnedCopier(transport, lambda: most)


def tensor(dtype: torch.dtype, shape: tuple[int, ...], *, turned: bool) -> torch.Tensor:
    made = (torch.rand(shape) * 9).to(dtype)
    return made.permute(list(reversed(range(made.ndim)))) if turned else made


@given(
    st.lists(st.builds(tensor, st.sampled_from(DTYPES), SHAPES, turned=st.booleans()), max_size=6)
)
def test_copies_are_those_that_are_made_at_once(tensors: list[torch.Tensor]) -> None:
    expected = [copy_at_once(tensor) for tensor in tensors]
    copies = copier_of(LateTransport())(tensors)
    if copies is None:
        assert not sum(tensor.numel() for tensor in tensors)
        return
    copies.wait()
    assert len(copies.tensors) == len(tensors)
    for copy, plain in zip(copies.tensors, expected, strict=True):
        assert copy.dtype == plain.dtype
        assert copy.shape == plain.shape
        assert copy.is_contiguous()
        assert torch.equal(copy, plain)


@given(st.lists(st.tuples(st.sampled_from(["cpu", "cuda:0", "cuda:1"]), st.integers(0, 1000))))
def test_no_two_tensors_overlap_and_each_device_has_one_part(given: list[tuple[str, int]]) -> None:
    sizes = [(torch.device(name), size) for name, size in given]
    found = plan(sizes)
    taken: list[tuple[int, int]] = []
    for (device, size), start in zip(sizes, found.places, strict=True):
        begin, end = found.spans[device]
        assert start % ALIGNMENT == begin % ALIGNMENT == 0
        assert begin + start + size <= end <= found.total
        taken.append((begin + start, begin + start + size))
    filled = sorted(span for span in taken if span[0] < span[1])
    for (_, stop), (start, _) in pairwise(filled):
        assert stop <= start
    assert found.total <= sum(size + ALIGNMENT for _, size in sizes)


def test_a_copy_is_of_the_moment_it_was_asked_for() -> None:
    weights = torch.ones(4)
    packed = pack({"weights": weights}, copier_of(LateTransport()))
    weights.zero_()
    assert arrived(packed)["weights"].tolist() == [1.0] * 4


def test_the_block_is_used_again_and_grows_with_the_state() -> None:
    transport = LateTransport()
    copier = copier_of(transport)
    for size in (10, 10, 40, 10, 40):
        packed = pack({"weights": torch.full((size,), 2.0)}, copier)
        packed.wait()
        assert packed.tensors[0].tolist() == [2.0] * size
        del packed
        gc.collect()
    assert transport.allocated == [64, 192]
    assert transport.begun == 5


def test_while_one_state_is_being_written_the_next_one_is_copied_at_once() -> None:
    transport = LateTransport()
    copier = copier_of(transport)
    first = pack({"weights": torch.full((4,), 1.0)}, copier)
    second = pack({"weights": torch.full((4,), 2.0)}, copier)
    assert transport.begun == 1
    assert second.tensors[0].tolist() == [2.0] * 4
    first.wait()
    assert first.tensors[0].tolist() == [1.0] * 4


def test_a_state_that_was_given_up_is_out_of_the_way_before_the_next_comes() -> None:
    transport = LateTransport()
    copier = copier_of(transport)
    pack({"weights": torch.full((4,), 1.0)}, copier)  # nobody waits for it
    gc.collect()
    packed = pack({"weights": torch.full((4,), 2.0)}, copier)
    assert transport.waits == 1
    packed.wait()
    assert packed.tensors[0].tolist() == [2.0] * 4


@pytest.mark.parametrize("fails", [True, False])
def test_without_page_locked_memory_copies_are_made_at_once_and_this_is_said_once(
    caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    transport = LateTransport()
    transport.fails = fails
    copier = copier_of(transport, most=100)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            packed = pack({"weights": torch.full((40,), 2.0)}, copier)
            assert packed.tensors[0].tolist() == [2.0] * 40
    assert caplog.text.count("checkpoints hold up the training: no 0 MB of page-locked memory") == 1
    assert transport.begun == 0


def test_a_moment_without_room_is_over_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport, most = LateTransport(), 100
    copier = PinnedCopier(transport, lambda: most)
    weights = torch.full((40,), 2.0)
    for _ in range(2):
        assert copier([weights]) is None
    most = 1000
    copies = copier([weights])
    assert copies is not None
    copies.wait()
    assert copies.tensors[0].tolist() == [2.0] * 40
    assert caplog.text.count("checkpoints hold up the training") == 1


def test_an_error_of_the_device_leaves_the_block_free(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = LateTransport()
    copier = copier_of(transport)

    def fail(regions: Sequence[Region]) -> Callable[[], None]:
        raise RuntimeError("CUDA error: unspecified launch failure")

    with monkeypatch.context() as patch:
        patch.setattr(transport, "begin", fail)
        with pytest.raises(RuntimeError, match="launch failure"):
            copier([torch.ones(4)])
    copies = copier([torch.ones(4)])
    assert copies is not None
    assert copies.tensors[0].numel() == 4
    assert transport.begun == 1


class Taken:
    """Room without end, that counts."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def take(self, size: int) -> bool:
        self.now += size
        self.most = max(self.most, self.now)
        return True

    def give_back(self, size: int) -> None:
        self.now -= size


def test_a_copy_that_fails_gives_back_its_room_and_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not enough memory: you tried to allocate 16 bytes")

    class ElsewhereTransport(LateTransport):
        def carries(self, device: torch.device) -> bool:
            return device.type == "meta"

        def begin(self, regions: Sequence[Region]) -> Callable[[], None]:
            return lambda: None

    room, copier = Taken(), copier_of(ElsewhereTransport())
    away = torch.ones(4, device="meta")
    with monkeypatch.context() as patch:
        patch.setattr(state_codec, "copy_at_once", fail)
        with pytest.raises(RuntimeError, match="not enough memory"):
            pack({"weights": away, "step": torch.ones(4)}, copier, room=room)
    assert (room.now, room.most) == (0, 16)
    assert copier([away]) is not None, "the block is free"


def test_checkpoints_hold_what_was_saved_and_free_the_block(tmp_path: Path) -> None:
    transport = LateTransport()
    folder = CheckpointDir(tmp_path, copier=copier_of(transport))
    weights = torch.zeros(100)
    for step in range(1, 5):
        weights.fill_(step)
        folder.save(step, {"weights": weights}, wait=True)
        weights.fill_(-1)
        newest = folder.stored.newest()
        assert newest is not None
        assert read(newest.path)["weights"].tolist() == [step] * 100
    assert len(transport.allocated) == 1


def test_the_file_is_the_same_by_whatever_copies(tmp_path: Path) -> None:
    state = {"weights": torch.arange(7.0), "n": 3, "halves": torch.ones(2, 3, dtype=torch.bfloat16)}
    CheckpointDir(tmp_path / "a").save(1, state, wait=True)
    CheckpointDir(tmp_path / "b", copier=copier_of(LateTransport())).save(1, state, wait=True)
    [one] = (tmp_path / "a").glob("step-*")
    assert one.read_bytes() == (tmp_path / "b" / one.name).read_bytes()


def test_tensors_of_the_host_are_left_to_the_host() -> None:
    assert not CudaTransport().carries(torch.device("cpu"))
    assert CudaTransport().carries(torch.device("cuda", 1))


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_copy_within_the_device_leaves_half_of_what_is_free(size: int, free: int) -> None:
    assert fits_beside(size, free) == (2 * size <= free)


@pytest.mark.gpu
def test_a_gpu_goes_on_while_its_state_is_copied() -> None:
    copier = PinnedCopier(CudaTransport(), lambda: 1 << 30)
    weights = torch.arange(1 << 20, dtype=torch.float32, device="cuda").view(1024, 1024).t()
    for number in range(3):
        expected = weights.cpu()
        packed = pack({"weights": weights, "step": torch.tensor(1.0)}, copier)
        weights += 1
        packed.wait()
        assert packed.tensors[0].is_pinned(), number
        assert torch.equal(packed.tensors[0], expected)
        del packed
        gc.collect()
