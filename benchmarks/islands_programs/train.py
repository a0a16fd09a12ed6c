"""A sharded training for benchmarks and tests: steps of known cost, a line per step, no dropout.

Each process is one of a replica group (``penstock run --nproc-per-node=N --replica-group``). What
is random depends on seeds, so that two runs differ by the order of float additions alone.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from penstock.crds import environment
from penstock.trainer import elastic


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--global-batch", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--slot-seconds", type=float, default=0.02)
    parser.add_argument("--hurry", type=Path, help="once this file exists, slots cost nothing")
    parser.add_argument("--pause", type=Path, help="while this file exists, nobody goes on")
    parser.add_argument("--checkpoints", type=Path, help="folder of the checkpoints")
    parser.add_argument("--checkpoint-every", type=int, default=20, help="steps between two")
    parser.add_argument("--fail-at-sample", type=int, help="raise an error at this sample")
    options = parser.parse_args()
    os.environ[environment.STEP_LOG] = str(options.log)

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    shards = init_device_mesh("cpu", (distributed.get_world_size(),))
    torch.manual_seed(7)
    features = torch.randn(options.samples, 32)
    targets = (features @ torch.randn(32, 8)).argmax(1)
    # The last layer has 9 rows for any number of processes to share unevenly.
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 9), torch.nn.BatchNorm1d(9)
    )
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=shards)
    fully_shard(model, mesh=shards)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    with elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=options.samples,
        global_batch=options.global_batch,
        epochs=options.epochs,
        slots_per_step=options.slots,
        seed=3,
        checkpoint_dir=options.checkpoints,
        checkpoint_every_steps=options.checkpoint_every,
        replica_group=shards,
    ) as session:
        for step in session:
            for micro in step:
                if options.fail_at_sample in micro.indices.tolist():
                    raise ValueError(f"sample {options.fail_at_sample} cannot be read")
                model.eval()  # batch statistics would depend on how slots are divided
                loss = functional.cross_entropy(
                    model(features[micro.indices]), targets[micro.indices]
                )
                while options.pause is not None and options.pause.exists():
                    time.sleep(0.01)
                if options.hurry is None or not options.hurry.exists():
                    time.sleep(options.slot_seconds)
                micro.backward(loss)
            step.commit()
        if session.is_chief:
            with torch.no_grad():
                accuracy = (model(features).argmax(1) == targets).float().mean().item()
            session.report(accuracy=round(accuracy, 4))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
