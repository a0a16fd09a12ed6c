"""A session with a loader whose model counts what it is trained on, sample by sample.

Each sample's own row grows by one whenever the sample is trained on, and a second table by what the
sample drew: whatever is lost, repeated or made in another way shows in a row. The chief reports how
many rows are wrong, and the sum of what was drawn.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from lingering import linger
from torch.utils.data import Dataset

from penstock.trainer import elastic

GLOBAL_BATCH, SAMPLES, EPOCHS, SEED = 48, 480, 4, 5
FREE_STEPS = 3
STEP_SECONDS = 1.5
"""The job is not to end before the test has done what it is about, on a busy machine either."""


class Draws(Dataset[Any]):
    """A sample is its index, a number that it draws, and the parent of whoever made it."""

    def __init__(self, size: int, seconds: float, bad: int) -> None:
        self.size, self.seconds, self.bad = size, seconds, bad

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, int]:
        if index == self.bad:
            raise LookupError(f"no picture {index}")
        time.sleep(self.seconds)
        return index, torch.rand((), dtype=torch.float64), os.getppid()


class Counter(torch.nn.Module):
    """Two rows for each sample: how often it came, and the sum of what it drew."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(torch.zeros(samples, 2, dtype=torch.float64))

    def forward(self, indices: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """A mean loss whose gradient counts."""
        grows = torch.stack([torch.ones_like(drawn), drawn], dim=1)
        return -(self.rows[indices] * grows).sum() / len(indices) * GLOBAL_BATCH


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--sample-seconds", type=float, default=0.0)
    parser.add_argument("--hurry", type=Path, help="until this file exists, steps take their time")
    parser.add_argument("--fed", type=Path, help="made when a data worker's batch has come")
    parser.add_argument("--bad", type=int, default=-1, help="a sample that cannot be read")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = Counter(options.samples)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    dataset = Draws(options.samples, options.sample_seconds, options.bad)
    with elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=dataset,
        global_batch=GLOBAL_BATCH,
        epochs=options.epochs,
        slots_per_step=12,
        seed=SEED,
    ) as session:
        loader = session.loader(dataset, num_workers=options.num_workers)
        for step in session:
            for micro, (indices, drawn, makers) in loader.load(step):
                if options.fed and int(makers[0]) not in (os.getpid(), os.getppid()):
                    options.fed.touch()
                micro.backward(model(indices, drawn))
            if step.number >= FREE_STEPS:
                linger(options.hurry, STEP_SECONDS)
            step.commit()
        if session.is_chief:
            came, drawn = model.rows.detach().unbind(1)
            session.report(
                wrong_rows=int(((came - options.epochs).abs() > 1e-6).sum()),
                drawn=round(float(drawn.sum()), 6),
            )


if __name__ == "__main__":
    main()
