"""Copies to a device while a program is profiled, with a stand-in for the device.

Tensors on PyTorch's ``meta`` device are copied to without any hardware. In the test of a whole
program, that program pretends by itself to have a CUDA device, before it is looked at.
"""

from __future__ import annotations

import copy
import pickle
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="its tensors are copied")

from penstock.data.profiling.device_copies import (  # noqa: E402 - torch may be missing
    METHODS,
    DeviceCopies,
    InitialisedDevices,
)
from penstock.throughput.observations.copies import HOST_TO_DEVICE  # noqa: E402 - torch may be missing
from tests.data.profiling.test_profile import profile_in, run_program  # noqa: E402 - torch may be missing

PLAIN = {name: getattr(torch.Tensor, name) for name in METHODS if hasattr(torch.Tensor, name)}
SOURCE = torch.ones(4, 8)
Tensor: Any = torch.Tensor
BLOCKING, LAUNCHED, UNPINNED = [1, 0, 1], [0, 1, 1], [0, 0, 0]


class StandIn:
    """A device that never has anything to do, unless told otherwise."""

    def __init__(self, kind: str = "meta") -> None:
        self.kinds = frozenset([kind] if kind else [])
        self.waited = 0
        self.idle = True
        self.captures = False

    def wait(self, device: Any) -> bool:
        self.waited += 1
        return not self.captures

    def is_idle(self, device: Any) -> bool:
        return self.idle


@pytest.fixture
def pins() -> Any:
    def pin_memory(data: Any, device: Any = None) -> Any:
        return [module.pin_memory(one) for one in data] if isinstance(data, list) else data

    module = types.SimpleNamespace(pin_memory=pin_memory)
    return module


@pytest.fixture
def device() -> StandIn:
    return StandIn()


@pytest.fixture
def copies(device: StandIn, pins: Any) -> Iterator[DeviceCopies]:
    found = DeviceCopies(torch)
    found.begin(device, pins)
    yield found
    found.end()
    assert {name: getattr(torch.Tensor, name) for name in PLAIN} == PLAIN
    assert not set(METHODS) & set(torch.Tensor.__dict__)


def kinds(copies: DeviceCopies) -> list[tuple[list[float], float, float]]:
    return [(one[:3], one[3], one[5]) for one in copies.take()[0]]


def moved(batch: dict[str, Any], **options: Any) -> dict[str, Any]:
    """As people write it: a copy in a function of theirs."""
    return {name: one.to("meta", **options) for name, one in batch.items()}


def test_a_blocking_copy_is_seen_wherever_it_is_made(copies: DeviceCopies, device: StandIn) -> None:
    found = moved({"pictures": SOURCE, "labels": SOURCE})
    assert found["labels"].device.type == "meta"
    assert kinds(copies) == [(BLOCKING, 2, 2 * 128)]
    assert device.waited == 2, "what the device had to do before is no copy's"
    assert copies.take() == ([], [])


@pytest.mark.parametrize(
    "call",
    [
        lambda: SOURCE.to("meta"),
        lambda: SOURCE.to(device="meta"),
        lambda: SOURCE.to(torch.device("meta"), torch.float16),
        lambda: SOURCE.to(torch.empty(1, device="meta")),
        lambda: torch.empty(4, 8, device="meta").copy_(SOURCE),
        lambda: torch.empty(4, 8, device="meta").copy_(other=SOURCE, non_blocking=False),
        lambda: torch.nn.Parameter(SOURCE).to("meta"),
    ],
)
def test_every_way_to_copy_counts_once(copies: DeviceCopies, call: Any) -> None:
    call()
    assert kinds(copies) == [(BLOCKING, 1, 128)]


@pytest.mark.parametrize(
    "call",
    [
        lambda: SOURCE.to(torch.float16),
        lambda: SOURCE.to("cpu"),
        lambda: SOURCE.to(torch.float16, False, True),
        lambda: torch.empty(4, 8).copy_(SOURCE),
        lambda: torch.empty(4, 8, device="meta").to("meta"),
        lambda: torch.empty(4, 8, device="meta").copy_(torch.empty(4, 8, device="meta")),
    ],
)
def test_what_copies_nothing_to_a_device_is_none(
    copies: DeviceCopies, device: StandIn, call: Any
) -> None:
    call()
    assert kinds(copies) == []
    assert device.waited == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: SOURCE.to("meta", non_blocking=True),
        lambda: SOURCE.to("meta", torch.float16, True),
        lambda: torch.empty(4, 8, device="meta").copy_(SOURCE, True),
    ],
)
def test_a_copy_that_does_not_block_is_not_made_to(
    copies: DeviceCopies, device: StandIn, monkeypatch: pytest.MonkeyPatch, call: Any
) -> None:
    device.idle = False
    call()
    assert kinds(copies) == [(UNPINNED, 1, 128)]
    device.idle = True
    call()
    assert kinds(copies) == [([0, 0, 1], 1, 128)]
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    call()
    assert kinds(copies) == [(LAUNCHED, 1, 128)]
    assert device.waited == 0


def test_the_programs_errors_are_its_own(copies: DeviceCopies) -> None:
    with pytest.raises(RuntimeError, match="nowhere"):
        SOURCE.to("nowhere")
    with pytest.raises(TypeError):
        SOURCE.to(nowhere=1)
    with pytest.raises(TypeError):
        torch.Tensor.to()
    with pytest.raises(RuntimeError, match="size"):
        torch.empty(3, device="meta").copy_(SOURCE)
    assert kinds(copies) == []


def test_while_a_graph_is_recorded_nothing_is_waited_for(
    copies: DeviceCopies, device: StandIn
) -> None:
    device.captures = True
    assert SOURCE.to("meta").device.type == "meta"
    assert kinds(copies) == []


def test_other_threads_of_the_program_are_not_looked_at(copies: DeviceCopies) -> None:
    thread = threading.Thread(target=lambda: moved({"x": SOURCE}))
    thread.start()
    thread.join(10)
    assert kinds(copies) == []


def test_tensors_of_the_program_see_the_methods_that_they_know(copies: DeviceCopies) -> None:
    seen: list[Any] = []

    class Logged(Tensor):  # type: ignore[misc]  # of a library that may be missing
        @classmethod
        def __torch_function__(
            cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return super().__torch_function__(func, kinds, args, kwargs or {})

    SOURCE.as_subclass(Logged).to("meta")
    assert seen == [PLAIN["to"]]
    assert {PLAIN["to"]: "mine"}[seen[0]] == "mine"
    assert kinds(copies) == [(BLOCKING, 1, 128)]
    assert torch.Tensor.to.__name__ == "to"
    assert torch.Tensor.to.__doc__ == PLAIN["to"].__doc__
    assert pickle.loads(pickle.dumps(torch.Tensor.to)) == PLAIN["to"]
    assert copy.deepcopy(torch.Tensor.copy_) == PLAIN["copy_"]


def test_what_the_program_has_put_there_itself_stays(pins: Any) -> None:
    def own(self: Any, *args: Any, **options: Any) -> Any:
        return PLAIN["to"](self, *args, **options)

    torch.Tensor.to = own
    try:
        found = DeviceCopies(torch)
        found.begin(StandIn(), pins)
        moved({"x": SOURCE})
        assert kinds(found) == [(BLOCKING, 1, 128)]
        found.end()
        assert torch.Tensor.__dict__["to"] is own, "it had one before"
        found.begin(StandIn(), pins)
        torch.Tensor.to = own
        found.end()
        assert torch.Tensor.__dict__["to"] is own, "it has one since"
    finally:
        del torch.Tensor.to
    assert torch.Tensor.to is PLAIN["to"]


def test_without_a_device_nothing_is_looked_at(pins: Any) -> None:
    plain = pins.pin_memory
    found = DeviceCopies(torch)
    found.begin(InitialisedDevices(torch) if not torch.cuda.is_initialized() else StandIn(""), pins)
    assert not found.begun
    assert torch.Tensor.to is PLAIN["to"]
    assert pins.pin_memory is plain
    found.end()


def test_pinning_is_timed_once_a_batch_in_any_thread(copies: DeviceCopies, pins: Any) -> None:
    timed = pins.pin_memory
    thread = threading.Thread(target=timed, args=([1, [2, 3]], "meta"))
    thread.start()
    thread.join(10)
    assert timed([4]) == [4]
    _, pinned = copies.take()
    assert len(pinned) == 2
    assert all(begin <= end for begin, end in pinned)
    assert pinned[0][1] <= pinned[1][0]


def test_a_loop_that_never_asks_again_keeps_no_more_than_it_may(
    copies: DeviceCopies, pins: Any
) -> None:
    for _ in range(5000):
        pins.pin_memory([1])
        SOURCE.to("meta")
    found, pinned = copies.take()
    assert len(found) == 1
    assert found[0][3] == 5000
    assert len(pinned) <= 1024


PRETENDS = """
import threading, time, types
import torch
from torch.utils.data import DataLoader, Dataset

KIND = {kind!r}
plain_to, plain_pinned = torch.Tensor.to, torch.Tensor.is_pinned

class OnDevice(torch.Tensor):
    device = property(lambda self: torch.device("cuda", 0))

def to(self, target=None, *args, non_blocking=False, **options):
    if target != "cuda":
        return plain_to(self, target, *args, **options)
    time.sleep(0.0005 if non_blocking else 0.012)
    return self.clone().as_subclass(OnDevice)

class Stream:
    def synchronize(self): time.sleep(0.004)
    def query(self): return True

class Numbers(Dataset):
    def __len__(self): return 320
    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.full((100,), float(index))

def train(batch):
    assert type(batch) is OnDevice
    time.sleep(0.01)
    return float(batch.sum())

def main():
    torch.Tensor.to = to
    torch.Tensor.is_pinned = lambda self, *args: KIND == "launched"
    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_stream = lambda device=None: Stream()
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.manual_seed(1)
    total = 0.0
    for epoch in range(4):
        for batch in DataLoader(Numbers(), batch_size=8, shuffle=True, num_workers={workers}):
            total += train(batch.to("cuda", non_blocking=KIND == "launched"))
    print(total, torch.Tensor.__dict__["to"] is to)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "workers"), [("blocking", 0), ("blocking", 1), ("launched", 1)])
def test_a_whole_program_with_a_device(tmp_path: Path, kind: str, workers: int) -> None:
    program = PRETENDS.format(kind=kind, workers=workers)
    alone = run_program(tmp_path, program)
    profiled = run_program(tmp_path, program, options=["--no-storage", "--batches", "30"])
    assert profiled.returncode == 0, profiled.stderr
    assert profiled.stdout == alone.stdout
    assert "True" in alone.stdout
    found = profile_in(tmp_path)
    assert sum(found.causes.values()) == pytest.approx(found.stalled)
    if kind == "blocking":
        assert 0.012 <= found.copy_seconds < 0.016, "without the 4 ms before it"
        assert HOST_TO_DEVICE in found.causes
        assert HOST_TO_DEVICE in profiled.stderr
        assert "pinned, non_blocking copies" in profiled.stderr
    else:
        assert found.copy_seconds == 0.0
        assert HOST_TO_DEVICE not in found.causes


# ------------------------------------------------------------------------------- on a device


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", [False, True])
def test_copies_to_a_real_device(pins: Any, pinned: bool) -> None:
    torch.cuda.init()
    source = torch.ones(64, 1 << 18, pin_memory=pinned)
    found = DeviceCopies(torch)
    found.begin(InitialisedDevices(torch), pins)
    try:
        source.cuda()  # the allocator and the driver have it all once
        found.take()
        torch.cuda._sleep(200_000_000)  # 0.1 s or so, which are no copy's
        there = source.to("cuda")
        torch.cuda._sleep(200_000_000)
        again = source.to("cuda", non_blocking=True)
        copies, _ = found.take()
        torch.cuda.synchronize()
    finally:
        found.end()
    assert torch.equal(there.cpu(), source)
    assert torch.equal(again.cpu(), source)
    by_kind = {tuple(one[:3]): one[3:] for one in copies}
    number, seconds, nbytes = by_kind.pop((1, 0, 1))
    assert (number, nbytes) == (1, source.nbytes)
    assert 0 < seconds < 0.06, "64 MiB at 1 GB/s or more, without what was asked before"
    ((kind, (number, seconds, nbytes)),) = by_kind.items()
    assert kind == ((0, 1, 1) if pinned else (0, 0, 0))
    assert nbytes == source.nbytes
    if pinned:
        assert seconds < 0.01, "it is only begun"
