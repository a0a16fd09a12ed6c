"""Lightning's Trainer on a tiny model: nothing in it knows of Penstock.

    torchrun --nproc-per-node=2 examples/trainers/with_lightning.py --checkpoints=FOLDER

How many processes there are it is told by its environment, as Lightning wants to be told the same
that the launcher was. It begins where its newest checkpoint ends.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Disc(lightning.LightningModule):
    """Learns which points lie in a disc."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        points, inside = batch
        logits = self.layers(points).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, inside)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

    def on_train_start(self):
        at = f"epoch {self.current_epoch} with {self.trainer.world_size} processes"
        self.print(f"begins at {at}", flush=True)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--checkpoints", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    points = torch.rand(256, 2) * 4 - 2
    data = TensorDataset(points, (points.norm(dim=1) < 1.5).float())
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        accelerator="auto",
        strategy="ddp",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        callbacks=[ModelCheckpoint(options.checkpoints, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Disc(), DataLoader(data, batch_size=32, shuffle=True), ckpt_path="last")
    if trainer.is_global_zero:
        print(f"has trained {trainer.current_epoch} epochs", flush=True)


if __name__ == "__main__":
    main()
