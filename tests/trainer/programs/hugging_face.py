"""The Trainer of transformers on a tiny model that is made here; arguments: seconds, a folder."""

from __future__ import annotations

import sys
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerCallback


class Clock(TrainerCallback):
    """Ends the training after some seconds."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.02)
        control.should_training_stop = time.monotonic() > self.end


config = BertConfig(
    vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
)
rows = [{"input_ids": torch.randint(0, 32, (6,)), "labels": torch.tensor(n % 2)} for n in range(64)]
arguments = TrainingArguments(
    output_dir=sys.argv[2],
    max_steps=1_000_000,
    per_device_train_batch_size=8,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=arguments,
    train_dataset=rows,
    callbacks=[Clock(float(sys.argv[1]))],
)
trainer.train()
