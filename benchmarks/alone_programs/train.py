"""A small training program as anybody writes it: a dataset, a DataLoader, a loop.

It knows nothing of Penstock. Its options make many programs of it: map-style or iterable, with any
number of workers, small batches or large ones, that wait for storage or compute, that augment or
draw nothing. At the end it prints how fast it was and what its batches held, as one JSON object.

The clock starts before the first ``iter(loader)``: importing PyTorch does not count, starting
workers does. ``steady`` begins with the first batch of the second epoch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

STORED_BYTES = 64 << 10
SAMPLED_STRIDE = 4099  # bytes between two that are looked at in a run that is timed


class Storage:
    """Where samples come from: a wait, as for a far disk, then decoding, then augmenting."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.count = options.samples
        self.floats = options.batch_bytes // options.batch // 4
        self.wait_seconds = options.wait_ms / 1000
        self.decodings = options.decodings
        self.augment = options.augment
        values = np.random.default_rng(7).integers(0, 99, STORED_BYTES, np.uint8)
        self.stored = zlib.compress(values.tobytes(), 6)
        self.base = torch.arange(self.floats, dtype=torch.float32)

    def read(self, index: int) -> tuple[torch.Tensor, int]:
        """The sample of that index."""
        if self.wait_seconds:
            time.sleep(self.wait_seconds)
        total = index
        for _ in range(self.decodings):
            total += zlib.decompress(self.stored)[index % STORED_BYTES]
        sample = self.base + total
        if self.augment:  # from all three generators that programs use
            sample *= 1 + float(torch.rand(()))
            sample += float(np.random.rand()) + random.random()
        return sample, index


class Map(Dataset):
    """By index."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __len__(self) -> int:
        return self.storage.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.storage.read(index)


class Stream(IterableDataset):
    """One after the other; each worker has every n-th of them."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, self.storage.count, step):
            yield self.storage.read(index)


class Digest:
    """What the batches held, and in which order."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.order, self.content = hashlib.sha256(), hashlib.sha256()

    def add(self, samples: torch.Tensor, indices: torch.Tensor) -> None:
        self.order.update(indices.numpy().tobytes() + b"|")
        values = samples.numpy().reshape(-1).view(np.uint8)
        kept = values if self.whole else np.ascontiguousarray(values[::SAMPLED_STRIDE])
        self.content.update(kept.data)
        self.content.update(str((samples.shape, samples.dtype, samples.stride())).encode())


def make_loader(options: argparse.Namespace, storage: Storage) -> DataLoader[Any]:
    """The loader that the options describe."""
    more: dict[str, Any] = {}
    if options.workers:
        more["persistent_workers"] = options.persistent
    if not options.iterable:
        more["shuffle"] = True
    return DataLoader(
        Stream(storage) if options.iterable else Map(storage),
        batch_size=options.batch,
        num_workers=options.workers,
        pin_memory=options.pin,
        generator=torch.Generator().manual_seed(options.seed),
        **more,
    )


def step(options: argparse.Namespace, samples: torch.Tensor) -> None:
    """What training is: an accelerator that is busy, and some work of this process's own."""
    if options.step_ms:
        time.sleep(options.step_ms / 1000)
    samples.flatten()[:4096].square().mean()


def train(options: argparse.Namespace) -> dict[str, Any]:
    """All epochs; what is printed at the end."""
    storage, digest = Storage(options), Digest(options.whole)
    loader = make_loader(options, storage)
    if options.warm_seconds:  # as a program that tries its input first: with a loader of its own
        until = time.perf_counter() + options.warm_seconds
        while time.perf_counter() < until:
            for samples, _ in make_loader(options, storage):
                step(options, samples)
                if time.perf_counter() >= until:
                    break
        # Whatever the warming-up has drawn, training begins as it does without.
    random.seed(options.seed)
    np.random.seed(options.seed)
    torch.manual_seed(options.seed)
    began, steps, steady_began, steady_steps = time.perf_counter(), 0, 0.0, 0
    for epoch in range(options.epochs):
        for samples, indices in loader:
            if epoch == 1 and not steady_began:
                steady_began = time.perf_counter()
            elif steady_began:
                steady_steps += 1
            digest.add(samples, indices)
            step(options, samples)
            steps += 1
    ended = time.perf_counter()
    steady = (ended - steady_began) / steady_steps if steady_steps else 0.0
    return {
        "steps": steps,
        "total_steps_per_second": steps / (ended - began),
        "steady_steps_per_second": 1 / steady if steady else 0.0,
        "order": digest.order.hexdigest()[:16],
        "content": digest.content.hexdigest()[:16],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterable", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=16, help="samples")
    parser.add_argument("--batch-bytes", type=int, default=64 << 10)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--wait-ms", type=float, default=0.0, help="for storage, each sample")
    parser.add_argument("--decodings", type=int, default=0, help="computing, each sample")
    parser.add_argument("--step-ms", type=float, default=0.0, help="the accelerator is busy")
    parser.add_argument("--warm-seconds", type=float, default=0.0)
    parser.add_argument("--whole", action="store_true", help="digest every byte")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(train(options)), flush=True)


if __name__ == "__main__":
    main()
