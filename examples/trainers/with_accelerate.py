"""A loop that accelerate prepares: nothing in it knows of Penstock.

    accelerate launch --num_processes=2 examples/trainers/with_accelerate.py --checkpoints=FOLDER

It saves its state after each epoch, and begins where the newest one ends.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--checkpoints", type=Path, required=True)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    points = torch.rand(256, 2) * 4 - 2
    inside = (points.norm(dim=1) < 1.5).float()
    loader = DataLoader(TensorDataset(points, inside), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    saved = sorted(options.checkpoints.glob("epoch-*/done"))
    begin = len(saved)
    if saved:
        accelerator.load_state(str(saved[-1].parent))
    processes = accelerator.num_processes
    accelerator.print(f"begins at epoch {begin} with {processes} processes", flush=True)
    for epoch in range(begin, options.epochs):
        for batch, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch).squeeze(1), labels)
            accelerator.backward(loss)
            optimizer.step()
        folder = options.checkpoints / f"epoch-{epoch:04d}"
        accelerator.save_state(str(folder))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            (folder / "done").touch()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
