"""Lightning's Trainer; arguments: seconds, a folder."""

from __future__ import annotations

import sys
import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    """A line."""

    def __init__(self, seconds):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.end = time.monotonic() + seconds

    def training_step(self, batch, index):
        time.sleep(0.02)
        self.trainer.should_stop = time.monotonic() > self.end
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    max_epochs=-1,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[2],
)
trainer.fit(Line(float(sys.argv[1])), DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8))
