"""FSDP2 with sharded checkpoints: ``fsdp.py FOLDER SAMPLES EPOCHS BATCH EVERY``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.exactly_once_programs.log import LEARNING_RATE, Log, Samples, set_learning_rate

folder = Path(sys.argv[1])
samples, epochs, size, every = map(int, sys.argv[2:6])
log = Log(folder)
distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
first, step = 0, 0
complete = [path.parent for path in folder.glob("step-*/.metadata")]
if complete:
    newest = max(complete, key=lambda path: int(path.name.partition("-")[2]))
    weights, state = get_state_dict(model, optimizer)
    read: dict[str, Any] = {"model": weights, "optimizer": state, "epoch": 0, "step": 0}
    load(read, checkpoint_id=newest)
    set_state_dict(
        model, optimizer, model_state_dict=read["model"], optim_state_dict=read["optimizer"]
    )
    first, step = read["epoch"], read["step"]
    log.resumed(str(step))
dataset = Samples(samples)
sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(dataset, seed=7)
loader = DataLoader(dataset, batch_size=size, sampler=sampler)
for epoch in range(first, epochs):
    sampler.set_epoch(epoch)
    set_learning_rate(optimizer, epoch)
    for batch in loader:
        optimizer.zero_grad()
        (model(batch["values"]).squeeze(1) - batch["labels"]).pow(2).mean().backward()
        optimizer.step()
        log.seen(batch["sample"].tolist())
        step += 1
        if step % every == 0:
            weights, state = get_state_dict(model, optimizer)
            written = {"model": weights, "optimizer": state, "epoch": epoch, "step": step}
            save(written, checkpoint_id=folder / f"step-{step}")
            if rank == 0:
                log.saved(str(step))
whole = torch.nn.Linear(2, 1)
whole.load_state_dict({name: one.full_tensor() for name, one in model.state_dict().items()})
log.ended(whole, dataset)
distributed.destroy_process_group()
