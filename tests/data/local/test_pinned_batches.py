"""Local workers write batches to pinned memory; ordinary tensors stand for it but where marked."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.consuming import batch_stream
from penstock.data.local import workers
from penstock.data.pinned import pool as pinned_pool
from penstock.data.pinned.pool import LentPinned, PinnedPool
from penstock.data.queue.worker_pool import WorkerPool
from penstock.data.torch_loading import torch_loader
from penstock.data.torch_loading.torch_loader import DataLoader
from penstock.data.transport import remote_write
from tests.data.planes import eventually, same

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Images(torch_data.Dataset[Any]):
    """Samples of several types, large and small, and who made them."""

    def __init__(self, size: int = 160, seconds: float = 0.001) -> None:
        self.size, self.seconds = size, seconds

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        noise = torch.rand(3, 64, 64)
        return noise + index, noise[0].to(torch.bfloat16), index, f"name {index}", os.getpid()


class Allocator:
    """Stands for PyTorch's: gives ordinary tensors, and notes by whom it was called."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.made: list[torch.Tensor] = []
        self.threads: set[threading.Thread] = set()
        self.with_lock = False
        self.storages: set[int] = set()

    def __call__(self, size: int) -> torch.Tensor:
        self.threads.add(threading.current_thread())
        owned: Any = self.pool.makers.lock
        self.with_lock |= owned._is_owned()
        tensor = torch.full((size,), 255, dtype=torch.uint8)
        self.storages.add(tensor.untyped_storage().data_ptr())
        return tensor

    def gave(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.storages


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    made = WorkerPool()
    monkeypatch.setattr(batch_stream, "pool_of_process", lambda: made)
    yield made
    made.end()


@pytest.fixture
def allocator(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> Allocator:
    made = Allocator(pool)
    monkeypatch.setattr(torch_loader, "pinned_allocator", lambda loader: made)
    return made


def make(**options: Any) -> Any:
    return DataLoader(options.pop("dataset", None) or Images(), batch_size=4, **options)


def contents(batches: Any) -> list[Any]:
    return [[batch[0], batch[1].float(), *batch[2:4]] for batch in batches]


def wanted(**options: Any) -> list[Any]:
    """What the program gets that makes its batches itself."""
    torch.manual_seed(7)
    return contents(make(**options))


def test_the_bits_are_those_of_the_old_way(allocator: Allocator, pool: WorkerPool) -> None:
    expected = wanted()
    torch.manual_seed(7)
    batches = list(make(num_workers=2))
    assert same(contents(batches), expected)
    written = [batch for batch in batches if allocator.gave(batch[0])]
    assert len(written) > len(batches) // 2
    assert all(allocator.gave(batch[1]) for batch in written)
    assert not any(allocator.gave(batch[2]) for batch in batches), "a small one keeps no batch"
    assert not pool.makers.pinned.refused


def test_nothing_is_allocated_by_the_program_or_with_the_lock(allocator: Allocator) -> None:
    list(make(num_workers=2))
    assert allocator.threads
    assert threading.current_thread() not in allocator.threads
    assert not allocator.with_lock


def test_held_bytes_are_counted_until_the_last_tensor_is_gone(
    allocator: Allocator, pool: WorkerPool
) -> None:
    batches = list(make(num_workers=2))
    kept = [batch for batch in batches if allocator.gave(batch[0])]
    size = kept[0][0].untyped_storage().nbytes()
    assert size == pinned_pool.rounded(size)
    count = len(kept)
    eventually(lambda: pool.makers.pinned.held_bytes == count * size)
    part = kept[0][0][0, 0]
    del batches, kept
    gc.collect()
    eventually(lambda: pool.makers.pinned.held_bytes == size)
    del part
    gc.collect()
    assert pool.makers.pinned.held_bytes == 0


def test_a_batch_that_is_kept_is_never_written_over(allocator: Allocator) -> None:
    kept, copies = [], []
    for batch in make(num_workers=2):
        kept.append(batch[0])
        copies.append(batch[0].clone())
    assert all(torch.equal(*pair) for pair in zip(kept, copies, strict=True))


def test_one_that_is_killed_in_the_middle_loses_nothing(
    allocator: Allocator, pool: WorkerPool
) -> None:
    expected = wanted()
    torch.manual_seed(7)
    got, killed = [], set()
    for step, batch in enumerate(make(num_workers=2)):
        got.append(batch)
        if step in (8, 20) and (pid := int(batch[4][0])) not in killed:
            killed.add(pid)
            os.kill(pid, 9)
    assert killed
    assert same(contents(got), expected)
    del got, batch
    gc.collect()
    eventually(lambda: pool.makers.pinned.held_bytes == 0)


def test_one_that_hangs_keeps_what_it_was_lent_until_it_is_dead(
    allocator: Allocator, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "END_SECONDS", 2.0)
    batches = iter(make(dataset=Images(4000), num_workers=1))
    batch = next(one for one in batches if allocator.gave(one[0]))
    worker = psutil.Process(int(batch[4][0]))
    worker.suspend()
    del batch, batches
    gc.collect()
    pool.sweep()
    looks = 0
    while pool.makers.pinned.held_bytes:
        looks += 1
        time.sleep(0.01)
    assert looks, "it was lent something"
    assert not psutil.pid_exists(worker.pid)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EFAULT])
def test_a_write_that_is_refused_is_tried_no_more(
    allocator: Allocator,
    pool: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    expected = wanted()
    monkeypatch.setattr(remote_write, "process_vm_writev", refuse)
    for _ in range(2):
        torch.manual_seed(7)
        batches = list(make(num_workers=2))
        assert same(contents(batches), expected)
        assert not any(allocator.gave(batch[0]) for batch in batches)
    assert pool.makers.pinned.refused
    assert caplog.text.count("cannot write there") == 1
    assert os.strerror(number) in caplog.text
    eventually(lambda: pool.makers.pinned.held_bytes == 0)


def test_a_device_that_gives_no_memory_ends_the_new_way_only(
    allocator: Allocator, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(loader: Any) -> Any:
        def allocate(size: int) -> Any:
            raise RuntimeError("CUDA error: out of memory")

        return allocate

    expected = wanted()
    monkeypatch.setattr(torch_loader, "pinned_allocator", fail)
    torch.manual_seed(7)
    assert same(contents(make(num_workers=2)), expected)
    assert pool.makers.pinned.refused


class Mixed(Images):
    """Mostly tensors, and an array."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 64, 64), float(index)), np.full((32, 32), index)


def collate(samples: list[Any]) -> Any:
    return torch.stack([one[0] for one in samples]), np.stack([one[1] for one in samples])


def test_arrays_do_not_lie_in_pinned_memory(allocator: Allocator) -> None:
    batches = list(make(dataset=Mixed(), num_workers=2, collate_fn=collate))
    written = [batch for batch in batches if allocator.gave(batch[0])]
    assert written
    for tensor, array in written:
        first = tensor.untyped_storage().data_ptr()
        assert type(array) is np.ndarray
        assert not first <= array.ctypes.data < first + tensor.untyped_storage().nbytes()
    assert [int(batch[1][0, 0, 0]) for batch in batches] == list(range(0, 160, 4))


# ---------------------------------------------------------------------- what a worker was lent


def ready(pool: PinnedPool, size: int = 100_000) -> None:
    """Have a block ready, as the thread does that receives."""
    pool.lend(size, lambda count: torch.zeros(count, dtype=torch.uint8))
    order = pool.next_order()
    assert order is not None
    pool.put(order.make())


def lend(lent: LentPinned) -> pinned_pool.PinnedBlock | None:
    return lent.lend(100_000, lambda count: torch.zeros(count, dtype=torch.uint8))


def test_what_was_lent_outlives_a_worker_that_hangs() -> None:
    pool = PinnedPool()
    ready(pool)
    lent = LentPinned(pool)
    assert lend(lent) is not None
    pool.trim()
    gc.collect()
    assert pool.held_bytes == 131_072, "as long as nobody knows"
    lent.end(dead=False)
    del lent
    gc.collect()
    assert pool.held_bytes == 131_072, "for ever: it may write at any time"
    pinned_pool._kept.clear()
    assert pool.held_bytes == 0


def test_what_was_lent_is_let_go_when_the_worker_is_dead() -> None:
    pool = PinnedPool()
    ready(pool)
    lent = LentPinned(pool)
    block = lend(lent)
    assert block is not None
    lent.end(dead=True)
    assert lend(lent) is None, "it is not lent again"
    del block
    assert pool.held_bytes == 0


def test_only_what_nobody_writes_to_is_lent_again() -> None:
    pool = PinnedPool()
    ready(pool)
    lent = LentPinned(pool)
    first = lend(lent)
    assert first is not None
    assert lend(lent) is None
    lent.give_back(first.number)
    lent.give_back(first.number)  # whatever a worker says twice
    assert lend(lent) is first
    assert lend(lent) is None
    assert lent.take(first.number) is first
    assert lent.take(first.number) is None


def test_what_comes_after_all_streams_have_ended_is_let_go() -> None:
    pool = PinnedPool()
    ready(pool)
    lent = LentPinned(pool)
    block = lend(lent)
    order = pool.next_order()
    assert block is not None
    assert order is not None
    pool.trim()
    pool.put(order.make())
    lent.give_back(block.number)
    del block
    assert pool.held_bytes == 0


def test_no_more_is_made_ahead_than_a_few() -> None:
    pool = PinnedPool()
    for _ in range(100):
        pool.lend(300 << 20, lambda count: torch.empty(0, dtype=torch.uint8))
    orders = 0
    while (order := pool.next_order()) is not None:
        pool.put(order.make())
        orders += 1
    assert orders == pinned_pool.SPARE_BLOCKS


# ------------------------------------------------------------------------------- on a device


@pytest.mark.gpu
def test_copies_on_any_stream_keep_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropped at once after each copy, while workers fill whatever memory is free."""
    monkeypatch.setenv("PENSTOCK_PINNED_WRITES", "1")
    loader = DataLoader(Large(), batch_size=4, num_workers=4, pin_memory=True)
    streams = [torch.cuda.Stream() for _ in range(4)]
    choose = np.random.default_rng(1)
    pool = batch_stream.pool_of_process()
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    for batch, indices in loader:
        assert batch.is_pinned()
        assert indices.is_pinned()
        stream = streams[int(choose.integers(4))]
        with torch.cuda.stream(stream):
            torch.cuda._sleep(int(choose.integers(20_000_000)))  # the copy waits, the program not
            copies.append(
                (batch.to("cuda", non_blocking=True), indices.to("cuda", non_blocking=True))
            )
        del batch, indices
    torch.cuda.synchronize()
    assert not pool.makers.pinned.refused
    for batch, indices in copies:
        expected = indices.float().view(-1, 1, 1, 1).expand_as(batch)
        assert torch.equal(batch, expected)


class Large(torch_data.Dataset[Any]):
    """Samples of 3 MB that hold their number."""

    def __len__(self) -> int:
        return 800

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 512, 512), float(index)), index
