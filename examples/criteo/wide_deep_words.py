"""Wide & Deep on a click log of words: its step hashes them, and that one function is offloaded.

As recommenders have it, the columns of a sample are words, and what the model looks up is a hash of
each. In plain Python that takes longer than the training. ``penstock.data.offload`` has it done
where the batches are made; without ``penstock run`` the line changes nothing.
"""

from __future__ import annotations

import argparse
import time
import zlib

import torch
from data import Clicks
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from wide_deep_plain import WideDeep

import penstock.data

BUCKETS = 5000


class Words(Dataset):
    """Samples of 13 numbers, 26 words and a label."""

    def __init__(self, size: int) -> None:
        self.clicks = Clicks(cap=20_000)
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, list[str], float]]:
        numbers, ids, labels = self.clicks.make(torch.tensor(indices))
        words = [[f"column {c}: {value:x}" for c, value in enumerate(row)] for row in ids.tolist()]
        return list(zip(numbers, words, labels, strict=True))


def look_up(columns: list[list[str]]) -> torch.Tensor:
    """The bucket of each word: int64 (samples, columns)."""
    return torch.tensor(
        [[zlib.crc32(word.encode()) % BUCKETS for word in column] for column in columns]
    ).T


def main() -> None:
    """Train for some epochs; print the loss and the samples a second of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="of the DataLoader")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = Words(options.samples)
    model: nn.Module = WideDeep((BUCKETS,) * len(words.clicks.sizes))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    loader = DataLoader(words, options.batch_size, shuffle=True, num_workers=options.workers)
    hashed = penstock.data.offload(look_up)
    for epoch in range(options.epochs):
        began, total = time.perf_counter(), 0.0
        for numbers, columns, labels in loader:
            logits = model(numbers, hashed(columns))
            loss = functional.binary_cross_entropy_with_logits(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        rate = options.samples / (time.perf_counter() - began)
        print(f"epoch {epoch}: loss {total / len(loader):.9f}, {rate:.0f} samples/s", flush=True)


if __name__ == "__main__":
    main()
