"""The training process of `benchmarks.kill`: takes batches, keeps a model and a checkpoint.

The loader has workers of its own beside the data workers, and both make its batches. The "model" is
the list of samples that it has seen. It is written to the checkpoint together with the loader's
state in one atomic step, every few batches; what was taken after the last checkpoint dies with the
process, as a real model's steps would, and is taken again.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.data import DataLoader
from penstock.data.consuming.process import consumer_of_process

BATCH, EPOCHS = 8, 2
CHECKPOINT_STEPS = 5


class Slow:
    """Samples that take a while and draw random numbers."""

    def __init__(self, samples: int, seconds: float) -> None:
        self.samples, self.seconds = samples, seconds

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(self.seconds)
        return {"index": index, "noise": np.random.rand(32, 32)}


def make_loader(samples: int, sample_seconds: float, seed: int, workers: int) -> DataLoader:
    """The loader, whose batches depend on neither the seconds nor the workers."""
    return DataLoader(
        Slow(samples, sample_seconds),
        BATCH,
        shuffle=True,
        num_workers=workers,
        generator=torch.Generator().manual_seed(seed),
    )


def save(file: Path, content: dict[str, Any]) -> None:
    """Replace a file in one step."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    fresh.replace(file)


def save_checkpoint(file: Path, content: dict[str, Any]) -> None:
    """As `save`, of what holds tensors."""
    fresh = file.with_suffix(".new")
    torch.save(content, fresh)
    fresh.replace(file)


def main(folder: Path, seed: int, samples: int, sample_seconds: float, workers: int) -> None:
    checkpoint = folder / "checkpoint.pt"
    loader = make_loader(samples, sample_seconds, seed, workers)
    seen: list[list[int]] = [[] for _ in range(EPOCHS)]
    sums: list[list[float]] = [[] for _ in range(EPOCHS)]
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=False)  # its own file
        loader.load_state_dict(saved["loader"])
        seen, sums = saved["seen"], saved["sums"]
    longest, last = 0.0, time.monotonic()
    while (epoch := loader.state_dict()["epoch"]) < EPOCHS:
        for step, batch in enumerate(loader):
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            seen[epoch] += batch["index"].tolist()
            sums[epoch].append(float(batch["noise"].sum()))
            if step % CHECKPOINT_STEPS == 0:
                state = {"loader": loader.state_dict(), "seen": seen, "sums": sums}
                save_checkpoint(checkpoint, state)
            save(folder / "progress.json", {"stall": longest, "at": time.time()})
        state = {"loader": loader.state_dict(), "seen": seen, "sums": sums}
        save_checkpoint(checkpoint, state)
    consumer = consumer_of_process()
    counts = consumer.counts if consumer is not None else None
    made = {
        "arrived": counts.arrived if counts else 0,
        "made_nearby": counts.made_nearby if counts else 0,
    }
    done = {"seen": seen, "sums": sums, "stall": longest, **made}
    save(folder / "done.json", done)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
        int(sys.argv[5]),
    )
