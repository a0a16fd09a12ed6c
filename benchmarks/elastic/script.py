"""A training script for benchmarks and tests: small model, steps of known cost, a line per step.

Each slot costs ``--slot-seconds`` of sleep rather than of computing, so that the figures are about
membership and not about how many workers two cores can carry. ``--log`` is the folder of the step
logs.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch.nn import functional

from penstock.crds import environment
from penstock.trainer import elastic


def stand_still(mark: Path | None) -> None:
    """For ever; with a mark, only who comes first."""
    if mark is not None:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return
    while True:
        time.sleep(1)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--global-batch", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--slot-seconds", type=float, default=0.01)
    parser.add_argument("--hurry", type=Path, help="once this file exists, slots cost nothing")
    parser.add_argument("--slow-rank", type=int, help="this worker is slower")
    parser.add_argument("--slow-factor", type=float, default=4.0)
    parser.add_argument("--fail-at-step", type=int, help="raise an error at this step")
    parser.add_argument("--hang-at-step", type=int, help="stand still at this step")
    parser.add_argument("--hung", type=Path, help="file of the one that has: no other does")
    parser.add_argument("--fail-at-sample", type=int, help="raise an error at this sample")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps between two")
    parser.add_argument("--snapshot-every", type=int, help="steps between copies of the state")
    options = parser.parse_args()
    os.environ[environment.STEP_LOG] = str(options.log)

    torch.set_num_threads(1)
    torch.manual_seed(7)
    features = torch.randn(options.samples, 32)
    targets = (features @ torch.randn(32, 8)).argmax(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 8)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rank = int(os.environ.get(environment.RANK, "0"))
    cost = options.slot_seconds * (options.slow_factor if rank == options.slow_rank else 1.0)

    with elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=options.samples,
        global_batch=options.global_batch,
        epochs=options.epochs,
        slots_per_step=options.slots,
        seed=3,
        checkpoint_every_steps=options.checkpoint_every,
        snapshot_every_steps=options.snapshot_every,
    ) as session:
        for step in session:
            for micro in step:
                if step.number == options.fail_at_step:
                    raise ValueError(f"step {step.number} fails, as it was told to")
                if step.number == options.hang_at_step:
                    stand_still(options.hung)
                if options.fail_at_sample in micro.indices.tolist():
                    raise ValueError(f"sample {options.fail_at_sample} cannot be read")
                loss = functional.cross_entropy(
                    model(features[micro.indices]), targets[micro.indices]
                )
                if options.hurry is None or not options.hurry.exists():
                    time.sleep(cost)
                micro.backward(loss)
            step.commit()
        if session.is_chief:
            model.eval()
            with torch.no_grad():
                accuracy = (model(features).argmax(1) == targets).float().mean().item()
            session.report(accuracy=round(accuracy, 4))


if __name__ == "__main__":
    main()
