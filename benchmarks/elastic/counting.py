"""A training script on parameter servers that counts: what each sample did to the model is visible.

Row i of a table of width 1 goes up by exactly 1 each time sample i is trained on (SGD with a rate
of 1 and a gradient of -1), and a dense number by 1 with each batch. So after E epochs every row is
E and the dense number is the number of batches, or a sample was lost or repeated: no account that
the runtime keeps of itself is trusted. Run by ``penstock run -- python -m ...``, or alone.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import nn

from penstock.trainer import ps


class Counter(nn.Module):
    """A table and a dense number that count."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.rows = ps.Embedding(samples, 1, std=0.0)
        self.batches = nn.Parameter(torch.zeros(1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """A loss whose gradients are -1 for each row of the batch and for the dense number."""
        loss: torch.Tensor = -(self.rows(batch).sum() + self.batches.sum())
        return loss


def main() -> None:
    """Train, count, and on the chief report what the table says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-seconds", type=float, default=0.02)
    parser.add_argument("--hurry", type=Path, help="a file: from when it exists batches are free")
    parser.add_argument("--staleness", type=int)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = Counter(options.samples)
    optimizer = ps.Optimizer(model, "sgd", lr=1.0)
    with ps.session(
        model,
        optimizer,
        dataset_size=options.samples,
        batch_size=options.batch_size,
        epochs=options.epochs,
        staleness=options.staleness,
        checkpoint_every=options.checkpoint_every,
    ) as session:
        hurry = False
        for batch in session:
            loss = model(batch)
            hurry = hurry or (options.hurry is not None and options.hurry.exists())
            if not hurry:
                time.sleep(options.batch_seconds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if session.is_chief:
            counts = session.state_dict()["rows.weight"].flatten().round().long()
            missing = (options.epochs - counts).clamp(min=0)
            beyond = (counts - options.epochs).clamp(min=0)
            session.report(
                rows_lost=int(missing.sum()),
                rows_repeated=int(beyond.sum()),
                batches_counted=round(float(model.batches.detach())),
            )


if __name__ == "__main__":
    main()
