"""Lightning's Trainer: ``with_lightning.py FOLDER SAMPLES EPOCHS BATCH EVERY``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

from benchmarks.exactly_once_programs.log import LEARNING_RATE, Log, Samples, set_learning_rate

folder = Path(sys.argv[1])
samples, epochs, size, every = map(int, sys.argv[2:6])
log = Log(folder)
complete = folder / "complete"


class Model(lightning.LightningModule):
    """Says what it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        log.seen(batch["sample"].tolist())
        return (self.layer(batch["values"]).squeeze(1) - batch["labels"]).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=LEARNING_RATE)

    def on_train_epoch_start(self) -> None:
        set_learning_rate(self.optimizers(), self.current_epoch)


class Saves(lightning.Callback):
    """Saves after each so many steps; a checkpoint counts once it is complete."""

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        step = trainer.global_step
        if step % every:
            return
        trainer.save_checkpoint(folder / f"step-{step}.ckpt")
        if trainer.is_global_zero:
            complete.with_suffix(".new").write_text(str(step))
            complete.with_suffix(".new").replace(complete)
            log.saved(str(step))


torch.manual_seed(0)
trainer = lightning.Trainer(
    max_epochs=epochs,
    accelerator="cpu",
    strategy="ddp",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    callbacks=[Saves()],
    enable_checkpointing=False,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
newest = None
if complete.exists():
    newest = folder / f"step-{complete.read_text()}.ckpt"
    log.resumed(complete.read_text())
model, dataset = Model(), Samples(samples)
trainer.fit(model, DataLoader(dataset, batch_size=size, shuffle=True), ckpt_path=newest)
log.ended(model.layer, dataset)
