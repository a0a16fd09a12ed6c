"""A recommender's program whose samples take long to make, and whose step is short.

Each sample is a row of words that are hashed. ``--work sleeps`` has it take its time asleep, so
that a few cores suffice for many data workers; ``computes`` has it hash for as long. The rate is
taken once as many processes have made batches as are expected, and from then on for a while.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

BATCH = 8
COLUMNS, BUCKETS = 26, 5000
LIMIT_SECONDS = 240.0


class Words(Dataset):
    """Samples of hashed words, each with the process that made it."""

    def __init__(self, seconds: float, *, computes: bool) -> None:
        self.seconds = seconds
        self.computes = computes

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float, int]:
        until = time.thread_time() + self.seconds
        found = hashed(index)
        if self.computes:
            while time.thread_time() < until:
                found = hashed(index)
        else:
            time.sleep(self.seconds)
        return torch.tensor(found), float(index % 3 == 0), os.getpid()


def hashed(index: int) -> list[int]:
    words = (f"column {column}: {index * 31 + column}" for column in range(COLUMNS))
    return [int(hashlib.md5(word.encode()).hexdigest()[:8], 16) % BUCKETS for word in words]


def main() -> None:
    """Train until the rate is known; print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=("sleeps", "computes"), required=True)
    parser.add_argument("--sample-seconds", type=float, required=True)
    parser.add_argument("--makers", type=int, required=True, help="processes to wait for")
    parser.add_argument("--seconds", type=float, required=True, help="of which the rate is")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.EmbeddingBag(BUCKETS, 16), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    words = Words(options.sample_seconds, computes=options.work == "computes")
    makers: set[int] = set()
    began, settled, steps, here = time.perf_counter(), 0.0, 0, 0
    for ids, clicked, made_by in DataLoader(words, BATCH, shuffle=True):
        loss = functional.binary_cross_entropy_with_logits(model(ids).squeeze(1), clicked.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = time.perf_counter()
        makers.add(int(made_by[0]))
        if settled:
            steps += 1
            here += int(made_by[0]) == os.getpid()
            if now - settled >= options.seconds:
                break
        elif len(makers - {os.getpid()}) >= options.makers:
            settled = now
        elif now - began > LIMIT_SECONDS:
            raise TimeoutError(f"{len(makers)} processes have made batches")
    print(json.dumps({"rate": steps / (now - settled), "steps": steps, "made_here": here}))


if __name__ == "__main__":
    main()
