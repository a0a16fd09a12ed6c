"""A model that counts: after E epochs each of its rows must be exactly E.

Its gradients are -1 for each sample's own row and -1 for a dense number per batch, the rule is SGD
with rate 1, so whatever is lost, repeated or read from the wrong place shows in a row. As a script
it is one worker of a job; the chief reads all rows back and reports how many are wrong.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from penstock.trainer import ps


class Counter(torch.nn.Module):
    """A row for each sample, and one number for the batches."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.rows = ps.Embedding(samples, 1, std=0.0)
        self.batches = torch.nn.Parameter(torch.zeros(1))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Minus what is to be counted."""
        return -self.rows(samples).sum() - self.batches.sum()


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-seconds", type=float, default=0.02)
    parser.add_argument("--hurry", type=Path, help="do not wait any more once this file is there")
    parser.add_argument("--checkpoint-every", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = Counter(options.samples)
    optimizer = ps.Optimizer(model, "sgd", lr=1.0)
    with ps.session(
        model,
        optimizer,
        options.samples,
        options.batch_size,
        options.epochs,
        checkpoint_every=options.checkpoint_every,
    ) as session:
        for batch in session:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            if options.hurry is None or not options.hurry.exists():
                time.sleep(options.batch_seconds)
            optimizer.step()
        if session.is_chief:
            state = session.state_dict()
            wrong = (state["rows.weight"] != options.epochs).sum()
            session.report(wrong_rows=int(wrong), batches_counted=float(state["batches"]))


if __name__ == "__main__":
    main()
