"""DDP as people write it: ``plain.py FOLDER SAMPLES EPOCHS BATCH EVERY``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.exactly_once_programs.log import LEARNING_RATE, Log, Samples, set_learning_rate

folder = Path(sys.argv[1])
samples, epochs, size, every = map(int, sys.argv[2:6])
log = Log(folder)
distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
first, step, saved = 0, 0, folder / "checkpoint.pt"
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first, step = state["epoch"], state["step"]
    log.resumed(str(step))
replicas = DistributedDataParallel(model)
dataset = Samples(samples)
sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(dataset, seed=7)
loader = DataLoader(dataset, batch_size=size, sampler=sampler)
for epoch in range(first, epochs):
    sampler.set_epoch(epoch)
    set_learning_rate(optimizer, epoch)
    for batch in loader:
        optimizer.zero_grad()
        (replicas(batch["values"]).squeeze(1) - batch["labels"]).pow(2).mean().backward()
        optimizer.step()
        log.seen(batch["sample"].tolist())
        step += 1
        if rank == 0 and step % every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "epoch": epoch, "step": step}, folder / "new.pt")
            (folder / "new.pt").replace(saved)
            log.saved(str(step))
log.ended(model, dataset)
distributed.destroy_process_group()
