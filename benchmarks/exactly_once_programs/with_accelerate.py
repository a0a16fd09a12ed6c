"""A loop that accelerate prepares: ``with_accelerate.py FOLDER SAMPLES EPOCHS BATCH EVERY``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]  # it says nothing of types
from torch.utils.data import DataLoader

from benchmarks.exactly_once_programs.log import LEARNING_RATE, Log, Samples, set_learning_rate

folder = Path(sys.argv[1])
samples, epochs, size, every = map(int, sys.argv[2:6])
log = Log(folder)
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
dataset = Samples(samples)
loader = DataLoader(dataset, batch_size=size, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
saved = sorted(int(each.parent.name) for each in folder.glob("saved/*/done"))
first = step = 0
if saved:
    step = saved[-1]
    newest = folder / "saved" / str(step)
    accelerator.load_state(str(newest))
    first = int((newest / "done").read_text())
    log.resumed(str(step))
for epoch in range(first, epochs):
    set_learning_rate(optimizer, epoch)
    for batch in loader:
        optimizer.zero_grad()
        loss = (model(batch["values"]).squeeze(1) - batch["labels"]).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        log.seen(batch["sample"].tolist())
        step += 1
        if step % every == 0:
            accelerator.save_state(str(folder / "saved" / str(step)))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                done = folder / "saved" / str(step) / "new"
                done.write_text(str(epoch))
                done.rename(done.with_name("done"))
                log.saved(str(step))
log.ended(accelerator.unwrap_model(model), dataset)
accelerator.end_training()
