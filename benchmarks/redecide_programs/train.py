"""A training program whose input changes while it runs; it says when it had each batch.

It knows nothing of Penstock. Until the file ``--warm`` exists, reading a sample is a wait, as in
the first epoch over files that are not in memory yet.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 8
STEP_SECONDS = 0.01
SAMPLE_BYTES = 200_000


class Changing(Dataset[torch.Tensor]):
    """Samples that cost so many seconds of a core, and of waiting while nothing is warm."""

    def __init__(self, compute: float, read: float, warm: str) -> None:
        self._compute, self._read, self._warm = compute, read, warm

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._read and not Path(self._warm).exists():
            time.sleep(self._read)
        end = time.thread_time() + self._compute
        while time.thread_time() < end:
            pass
        return torch.from_numpy(np.full(SAMPLE_BYTES, index % 251, np.uint8))


def main() -> None:
    """Train until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--compute-ms", type=float, required=True)
    parser.add_argument("--read-ms", type=float, default=0.0)
    parser.add_argument("--warm", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Changing(options.compute_ms / 1000, options.read_ms / 1000, options.warm)
    for _ in DataLoader(dataset, batch_size=BATCH):
        print(time.monotonic(), flush=True)
        time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    main()
