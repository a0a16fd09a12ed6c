"""torch.utils.data.DataLoader with one worker process as a system."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.dataplane.measure import (
    CONSUMER_CORE,
    PRODUCER_CORE,
    Request,
    pin,
    ready_batch,
    serve,
)
from benchmarks.dataplane.workloads import BATCH, KINDS, collate


class Ready(Dataset):
    """Batches that are there already, each in tensors of its own.

    A tensor that was sent once lies in shared memory and costs nothing to send again, which no
    batch of a real pipeline does.
    """

    def __init__(self, size: int, tensors: int) -> None:
        self.batch = ready_batch(size, tensors)

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return {key: torch.from_numpy(array) for key, array in self.batch.items()}


def to_the_other_core(worker: int) -> None:
    """Pin the worker process."""
    os.sched_setaffinity(0, {PRODUCER_CORE})


def tensors_of(samples: Any) -> Any:
    return {key: torch.from_numpy(array) for key, array in collate(samples).items()}


def start(wanted: Request) -> Iterator[Any]:
    options: dict[str, Any] = {"num_workers": 1, "worker_init_fn": to_the_other_core}
    if "workload" in wanted:
        kind = wanted["workload"]
        dataset: Any = KINDS[kind]()
        options.update(batch_size=BATCH[kind], collate_fn=tensors_of)
    else:
        dataset = Ready(wanted["bytes"], wanted["tensors"])
        options.update(batch_size=None)
    loader: Any = DataLoader(dataset, sampler=itertools.count(), **options)
    yield from loader


if __name__ == "__main__":
    torch.set_num_threads(1)
    pin(CONSUMER_CORE)
    serve(start)
