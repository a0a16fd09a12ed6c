"""FSDP2 within a pod, elastic between pods: each pod's processes are one replica group.

    penstock run --nproc-per-node=2 --replica-group -- examples/islands/train.py

Each process holds its shard of parameters and optimizer state. Pods come and go as workers of any
session do: one that is lost takes its copy of the model with it, the others do the step again, and
a new one gets its shards from a living one. Without a cluster the command above trains alone.
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from penstock.trainer import elastic

SAMPLES = 2048


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--global-batch", type=int, default=128)
    options = parser.parse_args()
    use_gpu = torch.cuda.is_available()
    if use_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if use_gpu else "cpu")
    distributed.init_process_group("nccl" if use_gpu else "gloo")
    shards = init_device_mesh(device.type, (distributed.get_world_size(),))

    torch.manual_seed(0)
    points = torch.rand(SAMPLES, 2, device=device) * 4 - 2
    distance = points.norm(dim=1)
    inside = ((distance > 0.7) & (distance < 1.5)).float()
    layers = [nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)]
    model = nn.Sequential(*layers).to(device)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=shards)
    fully_shard(model, mesh=shards)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss_of = nn.BCEWithLogitsLoss()

    with elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=SAMPLES,
        global_batch=options.global_batch,
        epochs=options.epochs,
        replica_group=shards,
    ) as session:
        for step in session:
            for micro in step:
                micro.backward(
                    loss_of(model(points[micro.indices]).squeeze(1), inside[micro.indices])
                )
            step.commit()
        if session.is_chief:  # all processes of one replica group, whose model needs them all
            with torch.no_grad():
                right = (model(points).squeeze(1) > 0).float() == inside
            session.report(accuracy=round(right.float().mean().item(), 4))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
