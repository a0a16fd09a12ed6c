"""An elastic session; arguments: epochs (0: as many as there can be), seconds per micro-batch."""

from __future__ import annotations

import sys
import time

import torch

from penstock.trainer import elastic

torch.manual_seed(0)
data = torch.randn(64, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
epochs, pause = int(sys.argv[1]) or 100_000, float(sys.argv[2])
with elastic.session(
    model=model,
    optimizer=optimizer,
    dataset_size=64,
    global_batch=16,
    epochs=epochs,
    slots_per_step=2,
) as session:
    for step in session:
        for micro in step:
            time.sleep(pause)
            micro.backward(model(data[micro.indices]).pow(2).mean())
        step.commit()
    if session.is_chief:
        session.report()
