"""A model with a table by number, one keyed by ids and a dense part, trained by a chosen rule.

What it reports is a checksum of all that was trained: equal in every bit, or not.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from penstock.parameter_server.worker.client import Pushed
from penstock.parameter_server.worker.worker import Worker
from penstock.trainer import ps
from penstock.trainer.ps.alone import Alone

SAMPLES, BATCH, EPOCHS = 600, 10, 4
SLOTS = SAMPLES // BATCH * EPOCHS
SAVE_EVERY = 20


class Clicks(nn.Module):
    """Users by id, items by number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.users = ps.DynamicEmbedding(200, 4, admit_after=2, evict_after=60, std=0.1)
        self.items = ps.Embedding(31, 4, std=0.1)
        self.head = nn.Linear(4, 1)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """The loss of some samples."""
        users, items = (samples * samples * 7919) % 997 - (1 << 61), samples % 31
        logits = self.head(self.users(users) * 2 + self.items(items)).squeeze(1)
        return functional.binary_cross_entropy_with_logits(logits, (samples % 3 == 0).float())


def log_applied(file: Path) -> None:
    """Note each slot as it is applied; not one that is pushed again, and had been."""
    push = Worker.push

    def noted(self: Worker, slot: int, sparse: Any, dense: Any) -> Pushed:
        pushed = push(self, slot, sparse, dense)
        if pushed is Pushed.APPLIED:
            with file.open("a") as log:
                print(slot, file=log)
        return pushed

    Worker.push = noted  # type: ignore[method-assign]  # the same, and a note


def train_in_order(slots: list[int]) -> None:
    """Take the slots in this order, where the data's own is meant: of a program without servers."""
    left = iter(slots)

    def next_slot(self: Alone) -> int | None:
        return next(left, None)

    Alone.next_slot = next_slot  # type: ignore[method-assign]  # another order


def main() -> None:
    """Train to the end, slowly until a file says that nobody waits for anything any more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rule", default="adam")
    parser.add_argument("--hurry", type=Path)
    parser.add_argument("--slots", type=Path, help="alone: in this order, a list in JSON")
    parser.add_argument("--applied", type=Path, help="file for the slots that servers apply")
    options = parser.parse_args()
    if options.slots is not None:
        train_in_order(json.loads(options.slots.read_text()))
    if options.applied is not None:
        log_applied(options.applied)
    torch.set_num_threads(1)
    model = Clicks()
    schedule = ps.Schedule(kind="cosine", warmup=20, batches=SLOTS - 20, final=0.1)
    sgd = options.rule == "sgd"
    optimizer = ps.Optimizer(
        model,
        options.rule,
        lr=0.05,
        weight_decay=0.01,
        momentum=0.9 if sgd else None,
        nesterov=sgd,
        schedule=schedule,
    )
    training = ps.session(model, optimizer, SAMPLES, BATCH, EPOCHS, checkpoint_every=SAVE_EVERY)
    with training as session:
        for batch in session:
            if options.hurry is not None and not options.hurry.exists():
                time.sleep(0.02)
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
        state = session.state_dict()
        checksum = 0
        for name in sorted(state):
            checksum = zlib.crc32(state[name].numpy().tobytes(), checksum)
        session.report(checksum=checksum, users=len(state["users.ids"]))


if __name__ == "__main__":
    main()
