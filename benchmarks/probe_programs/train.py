"""A training program that waits for its data, and says how fast it trains and on what.

It knows nothing of Penstock. With ``--replay`` its batches are made before it begins, so that the
training is all that is timed: how fast it is when every batch is there. ``--step sleep`` waits as
for an accelerator; ``compute`` trains a small model on one thread. At the end it prints one JSON
object with the samples a second of its second half, the page faults of a step of it (which depend
on what its allocator has given back), its seconds, and a digest of every batch in its order and of
the trained weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

BATCH = 16
WIDTH = 512
STEP_SECONDS = 0.012
TURNS = 80
"""Of the work on a sample, which takes a millisecond or two of a core."""


def sample(index: int) -> torch.Tensor:
    """Some work, and the same bits wherever it is done."""
    values = np.random.default_rng(index).standard_normal(WIDTH * 8, dtype=np.float32)
    for _ in range(TURNS):
        values = np.tanh(values)
    return torch.from_numpy(values[:WIDTH].copy()) + torch.rand(())


class Indexed(Dataset[torch.Tensor]):
    """Samples by index."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        return sample(index)


class Iterated(IterableDataset[torch.Tensor]):
    """The same, one after the other, divided among workers."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, apart = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.size, apart):
            yield sample(index)


def filled() -> int:
    """Pages, by this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def main() -> None:
    """Train for one epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--step", choices=("sleep", "compute"), default="sleep")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--iterable", action="store_true")
    parser.add_argument("--replay", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = BATCH * options.batches
    dataset: Any = Iterated(size) if options.iterable else Indexed(size)
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=None if options.iterable else True,
        num_workers=options.workers,
    )
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches: Any = list(loader) if options.replay else loader
    digest, taken, middle, faults = hashlib.sha256(), 0, 0.0, 0
    begun = time.perf_counter()
    for batch in batches:
        before = filled()
        digest.update(batch.numpy().tobytes())
        if options.step == "sleep":
            time.sleep(STEP_SECONDS)
        else:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        taken += 1
        faults += filled() - before
        if taken == options.batches // 2:
            middle, faults = time.perf_counter(), 0
    ended = time.perf_counter()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    counted = taken - options.batches // 2
    found = {"rate": BATCH * counted / (ended - middle), "faults": faults / counted}
    print(json.dumps({**found, "seconds": ended - begun, "digest": digest.hexdigest()}))


if __name__ == "__main__":
    main()
