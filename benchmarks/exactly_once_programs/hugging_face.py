"""The Trainer of transformers: ``hugging_face.py FOLDER SAMPLES EPOCHS BATCH EVERY``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.exactly_once_programs.log import LEARNING_RATE, Log, Samples

folder = Path(sys.argv[1])
samples, epochs, size, every = map(int, sys.argv[2:6])
log = Log(folder)
complete = folder / "complete"


class Model(torch.nn.Module):
    """Says what it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(
        self, sample: torch.Tensor, values: torch.Tensor, labels: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        log.seen(sample.tolist())
        return {"loss": (self.layer(values).squeeze(1) - labels).pow(2).mean()}


class Saves(TrainerCallback):
    """A checkpoint counts once it is complete: a kill may come while it is written."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            complete.with_suffix(".new").write_text(str(state.global_step))
            complete.with_suffix(".new").replace(complete)
            log.saved(str(state.global_step))


torch.manual_seed(0)
arguments = TrainingArguments(
    output_dir=str(folder),
    num_train_epochs=epochs,
    learning_rate=LEARNING_RATE,
    per_device_train_batch_size=size,
    save_strategy="steps",
    save_steps=every,
    remove_unused_columns=False,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
model, dataset = Model(), Samples(samples)
trainer = Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[Saves()])
newest = None
if complete.exists() and get_last_checkpoint(str(folder)) is not None:
    newest = folder / f"checkpoint-{complete.read_text()}"
    log.resumed(complete.read_text())
trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
log.ended(model.layer, dataset)
