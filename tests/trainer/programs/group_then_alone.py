"""A process group that ends, then rank 0 goes on alone; arguments: steps of a second of both."""

from __future__ import annotations

import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

together, alone = map(int, sys.argv[1:])


def train(model: torch.nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(1)


distributed.init_process_group("gloo")
rank = distributed.get_rank()
model = torch.nn.Linear(4, 1)
train(DistributedDataParallel(model), together)
distributed.destroy_process_group()
if rank == 0:
    train(model, alone)
else:
    time.sleep(alone)
train(model, 1)  # each for itself: such as a calibration
print("trained")
