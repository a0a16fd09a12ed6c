"""FSDP2 with a sharded checkpoint, for torchrun: nothing in it knows of Penstock.

    torchrun --nproc-per-node=2 examples/fsdp/train.py --checkpoints=/tmp/fsdp

Each process holds its shard of parameters and optimizer state, and writes that shard alone
(`torch.distributed.checkpoint`). A checkpoint of one number of processes is read by any other: it
begins where the newest complete one ends.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def newest(folder: Path) -> Path | None:
    """The newest checkpoint that is complete: its metadata are written last."""
    done = [path.parent for path in folder.glob("step-*/.metadata")]
    return max(done, key=lambda path: int(path.name.partition("-")[2]), default=None)


def fingerprint(model: nn.Module) -> float:
    """A number that differs where parameters do, whatever the number of shards."""
    return sum(one.full_tensor().double().abs().sum().item() for one in model.parameters())


def save(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the checkpoint after so many steps: each process its shards."""
    weights, state = get_state_dict(model, optimizer)
    written = {"model": weights, "optimizer": state, "step": torch.tensor(step)}
    checkpoint.save(written, checkpoint_id=folder / f"step-{step}")


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Read the newest checkpoint; the steps after which it was written, 0 where there is none."""
    found = newest(folder)
    if found is None:
        return 0
    weights, state = get_state_dict(model, optimizer)
    read = {"model": weights, "optimizer": state, "step": torch.tensor(0)}
    checkpoint.load(read, checkpoint_id=found)
    set_state_dict(
        model, optimizer, model_state_dict=read["model"], optim_state_dict=read["optimizer"]
    )
    return int(read["step"])


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of all processes")
    options = parser.parse_args()
    use_gpu = torch.cuda.is_available()
    if use_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if use_gpu else "cpu")
    distributed.init_process_group("nccl" if use_gpu else "gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    shards = distributed.init_device_mesh(device.type, (world,))

    torch.manual_seed(0)
    layers = [nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)]
    model = nn.Sequential(*layers).to(device)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=shards)
    fully_shard(model, mesh=shards)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    begin = load(options.checkpoints, model, optimizer)
    known = fingerprint(model)
    if rank == 0:
        print(f"begins at step {begin} with {world} processes: {known!r}", flush=True)

    loss_of = nn.BCEWithLogitsLoss()
    for step in range(begin, options.steps):
        points = torch.rand(64, 2, device=device) * 4 - 2
        distance = points.norm(dim=1)
        inside = ((distance > 0.7) & (distance < 1.5)).float()
        optimizer.zero_grad()
        loss = loss_of(model(points).squeeze(1), inside)
        loss.backward()
        optimizer.step()
        if (step + 1) % options.save_every == 0:
            known = fingerprint(model)
            if rank == 0:
                text = f"saves step {step + 1} with {world} processes: {known!r}"
                print(f"{text}, loss {loss.item():.3f}", flush=True)
            save(options.checkpoints, step + 1, model, optimizer)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
