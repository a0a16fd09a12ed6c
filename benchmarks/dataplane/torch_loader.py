"""torch.utils.data.DataLoader with one worker process as a system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.dataplane.measure import CONSUMER_CORE, PRODUCER_CORE, pin, ready_batch, serve


class Ready(Dataset):  # type: ignore[type-arg]
    """Batches that are there already."""

    def __init__(self, size: int, tensors: int) -> None:
        self.batch = {key: torch.from_numpy(a) for key, a in ready_batch(size, tensors).items()}

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return self.batch


def to_the_other_core(worker: int) -> None:
    """Pin the worker process."""
    pin_all = {PRODUCER_CORE}
    import os

    os.sched_setaffinity(0, pin_all)


def start(size: int, tensors: int) -> Iterator[Any]:
    loader: Any = DataLoader(
        Ready(size, tensors),
        batch_size=None,
        sampler=iter(int, 1),  # type: ignore[arg-type]
        num_workers=1,
        worker_init_fn=to_the_other_core,
    )
    yield from loader


if __name__ == "__main__":
    torch.set_num_threads(1)
    pin(CONSUMER_CORE)
    serve(start)
