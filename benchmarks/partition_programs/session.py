"""A session with a loader and a frozen encoder, whose numbers are exact in whatever order they add.

    penstock run -- python -m benchmarks.partition_programs.session --num-workers 1

What the encoder gives is rounded to multiples of 1/64, and all else are sums in float64 with
weights that are powers of two: so the trained rows and the losses are the same bit by bit with any
number of workers, if every sample was trained on once per epoch with what the encoder makes of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import penstock.data
from penstock.data.offloading.loader_calls import Function
from penstock.trainer import elastic

GLOBAL_BATCH, SLOTS, SAMPLES, EPOCHS, SEED = 32, 8, 128, 24, 7
FREE_STEPS = 6
STEP_SECONDS = 0.6
"""The job is not to end before what is done to it is done, on a busy machine either."""
HOLD_SECONDS = 2.0
"""Of a step that is held: members join between two steps, so that none may last for long."""


class Images(Dataset[Any]):
    """Images that say which sample they are."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.randint(0, 256, (3, 24, 24), dtype=torch.uint8)


class Encoder(nn.Module):
    """Takes its time, and gives few different numbers."""

    def __init__(self) -> None:
        super().__init__()
        between = (nn.Conv2d(16, 16, 3) for _ in range(3))
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), *between)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """One number for each image."""
        hidden: torch.Tensor = self.layers(pixels.float() / 255).mean((1, 2, 3))
        return (hidden * 1024).round().double() / 64


class Rows(nn.Module):
    """A row for each sample: how often it came, and the sum of what the encoder made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(SAMPLES, 2, dtype=torch.float64))

    def forward(self, indices: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """A mean loss whose gradient counts."""
        grows = torch.stack([torch.ones_like(hidden), hidden], dim=1)
        return -(self.rows[indices] * grows).sum() / len(indices) * GLOBAL_BATCH


def counted(loader: elastic.SessionLoader, encode: Any) -> tuple[int, int]:
    """Batches, or calls of what is declared, that used what was made elsewhere, and compared."""
    of: Function | Any = getattr(encode, "offloaded", None) or loader._makers._work
    return (0, 0) if of is None else (of.moved, of.compared)


def tell_mode(loader: elastic.SessionLoader, step: int) -> None:
    """How all workers of the group run this step, as this one knows it."""
    work: Any = loader._makers._work
    if hasattr(work, "says"):
        place, proof = work.state.place, work.state.proof
        mode = proof.mode(step) if place.together and not place.stopped else None
        print("granted", json.dumps([work._group, step, mode]), flush=True)


def wait_while(condition: Callable[[], bool], seconds: float) -> None:
    """At most so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and condition():
        time.sleep(0.02)


def take_time(hurry: Path | None, hold: Path | None, seconds: float) -> None:
    """What is between two steps, as the files say that whoever watches makes and removes."""
    if hurry is not None:
        wait_while(lambda: not hurry.exists(), seconds)
    if hold is not None:
        wait_while(hold.exists, HOLD_SECONDS)


def main() -> None:
    """Train the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--declared", action="store_true", help="the encoder is declared")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--teacher", action="store_true", help="the encoder follows, past versions")
    parser.add_argument("--unfreeze", type=int, default=-1, help="the encoder is trained from then")
    parser.add_argument("--hurry", type=Path, help="until this file exists, steps take their time")
    parser.add_argument("--free", type=int, default=FREE_STEPS, help="steps that take no time")
    parser.add_argument("--step-seconds", type=float, default=STEP_SECONDS, help="until --hurry")
    parser.add_argument("--hold", type=Path, help="while this file exists, steps take 2 s more")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--moved", type=Path, help="made when a result from elsewhere was used")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    encode: Any = Encoder().eval().requires_grad_(requires_grad=False)
    model = Rows()
    if options.declared:
        encode = penstock.data.offload(encode)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    dataset = Images()
    with elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=dataset,
        global_batch=GLOBAL_BATCH,
        epochs=options.epochs,
        slots_per_step=SLOTS,
        seed=SEED,
    ) as session:
        loader = session.loader(dataset, num_workers=options.num_workers)
        for step in session:
            if step.epoch == options.unfreeze:
                encode.requires_grad_(requires_grad=True)
            for micro, (indices, pixels) in loader.load(step):
                micro.backward(model(indices, encode(pixels)))
            if options.teacher:
                with torch.no_grad():
                    for parameter in encode.parameters():
                        parameter.data.mul_(0.5)
            tell_mode(loader, step.number)
            moved, compared = counted(loader, encode)
            if options.moved and moved:
                options.moved.touch()
            if step.number >= options.free:
                take_time(options.hurry, options.hold, options.step_seconds)
            step.commit()
        moved, compared = counted(loader, encode)
        rows = hashlib.sha256(model.rows.detach().numpy().tobytes()).hexdigest()
        wrong = int((model.rows[:, 0] != options.epochs).sum())
        found = {"rows": rows, "moved": moved, "compared": compared, "wrong": wrong}
        print("encoding", json.dumps(found), flush=True)
        if session.is_chief:
            session.report(wrong_rows=wrong)


if __name__ == "__main__":
    main()
