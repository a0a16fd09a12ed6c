"""DistributedDataParallel as people have it, for torchrun: nothing in it knows of Penstock.

    torchrun --nproc-per-node=2 examples/ddp/train.py

What makes it fit for a job whose pods come and go is what makes it fit for torchrun's elastic mode:
it begins where its newest checkpoint ends (``--checkpoint``), whatever the number of processes.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def data(count: int) -> TensorDataset:
    """Points of a plane, and whether they lie in a ring."""
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(0)) * 4 - 2
    distance = points.norm(dim=1)
    return TensorDataset(points, ((distance > 0.7) & (distance < 1.5)).float())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path, help="file to begin from and to save to")
    options = parser.parse_args()
    use_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if use_gpu else "gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    begin = 0
    if options.checkpoint and options.checkpoint.exists():
        saved = torch.load(options.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["epoch"] + 1
    replica = DistributedDataParallel(model)

    ring = data(4096)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(ring)
    loader = DataLoader(ring, batch_size=256 // world, sampler=sampler)
    loss_of = nn.BCEWithLogitsLoss()
    for epoch in range(begin, options.epochs):
        sampler.set_epoch(epoch)
        for points, inside in loader:
            optimizer.zero_grad()
            loss = loss_of(replica(points.to(device)).squeeze(1), inside.to(device))
            loss.backward()
            optimizer.step()
        if rank == 0 and options.checkpoint:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            new = options.checkpoint.with_suffix(".new")
            torch.save({**state, "epoch": epoch}, new)
            new.replace(options.checkpoint)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f} with {world} processes", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
