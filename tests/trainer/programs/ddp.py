"""DistributedDataParallel; arguments: seconds, and seconds before the group is formed."""

from __future__ import annotations

import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = int(float(sys.argv[1]) / 0.1)
for _ in range(steps):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.1)
# In one piece: several processes share the pod's log, which is not buffered.
said = f"rank {distributed.get_rank()} of {distributed.get_world_size()} trained\n"
sys.stdout.write(said)
distributed.destroy_process_group()
