"""A small data plane for tests: a consumer, data workers as threads or processes, datasets."""

from __future__ import annotations

import contextlib
import random
import subprocess
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil

from penstock.data.consuming.consumer import Consumer
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker
from tests.fork_server import SERVER, Forked, start
from tests.patience import patient

SCRIPT = textwrap.dedent(
    """
    import hashlib, os, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Images(Dataset):
        def __len__(self):
            return 203
        def __getitem__(self, index):
            time.sleep(float(os.environ.get("SLOW", "0")))
            if len(sys.argv) > 1 and index == 77:
                raise RuntimeError("no such picture")
            return torch.rand(3, 16, 16) + index, index

    torch.manual_seed(1)
    order = torch.Generator().manual_seed(1)
    images = DataLoader(Images(), batch_size=4, shuffle=True, generator=order)
    digest, order = hashlib.sha256(), hashlib.sha256()
    for epoch in range(int(os.environ.get("EPOCHS", "2"))):
        for batch, indices in images:
            digest.update(batch.numpy().tobytes())
            order.update(indices.numpy().tobytes())
            digest.update(torch.rand(3).numpy().tobytes())  # the model draws too
    print("order", order.hexdigest())
    print("all", digest.hexdigest())
    """
)

"""A training script that knows nothing of Penstock; prints digests of what it was given."""

TOKEN = "the job's token"
WORKER = """
import sys
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker, work
token, *places = sys.argv[1:]
pairs = zip(places[::2], places[1::2], strict=True)
entries = [ConsumerEntry(name=f"program {n}", address=a, local=l) for n, (a, l) in enumerate(pairs)]
work(DataWorker(token=token, consumers=tuple(entries)))
"""


class Noise:
    """Samples that draw from all three generators that datasets draw from."""

    def __init__(self, size: int = 60, seconds: float = 0.0) -> None:
        self.size, self.seconds = size, seconds

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.size:
            raise IndexError(index)
        if self.seconds:
            time.sleep(self.seconds)
        return {
            "index": index,
            "numpy": np.random.rand(16, 16, 8),
            "python": random.random(),
        }


class Plain(Noise):
    """Samples that draw nothing, for data workers on threads: those share the generators."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"index": index, "numpy": np.full((16, 16, 8), float(index))}


def eventually(true: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until it is true; an AssertionError if that never comes."""
    deadline = time.monotonic() + patient(seconds)
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)


def local_workers() -> list[psutil.Process]:
    """The children of this process that live.

    Those are left out that `multiprocessing` starts once to help it with ``spawn`` and
    ``forkserver``, and keeps for good, as `tests.fork_server` does: they are there in whatever
    comes after a test of such.
    """
    helpers = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", f" {SERVER} ")
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            command = f" {' '.join(child.cmdline())} "
            if child.status() != psutil.STATUS_ZOMBIE and not any(
                one in command for one in helpers
            ):
                found.append(child)
    return found


@contextmanager
def consumer(**options: Any) -> Iterator[Consumer]:
    """A consumer without a dispatcher."""
    made = Consumer(token=TOKEN, **options)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def thread_worker(of: Consumer, *, tcp: bool = False, token: str = TOKEN) -> Iterator[DataWorker]:
    """A data worker on a thread of this process."""
    entry = ConsumerEntry(name=of.name, address=of.address, local="" if tcp else of.local)
    worker = DataWorker(token=token, consumers=(entry,))
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.leave()
        thread.join(20)
        assert not thread.is_alive()


def spawn(*of: Consumer, tcp: bool = False, token: str = TOKEN) -> Forked:
    """A data worker process, which serves these."""
    places = [place for one in of for place in (one.address, "" if tcp else one.local)]
    return start(["-c", WORKER, token, *places])


def end(process: Forked | subprocess.Popen[bytes]) -> None:
    """Kill and wait."""
    process.kill()
    process.wait(20)


def same(left: list[Any], right: list[Any]) -> bool:
    """Whether two lists of batches are the same, bit by bit."""
    return [freeze(one) for one in left] == [freeze(one) for one in right]


def freeze(batch: Any) -> Any:
    """A batch as something that compares bit by bit."""
    if isinstance(batch, dict):
        return {key: freeze(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [freeze(one) for one in batch]
    if hasattr(batch, "numpy"):
        batch = batch.numpy()
    return (str(batch.dtype), batch.shape, batch.tobytes()) if hasattr(batch, "tobytes") else batch
