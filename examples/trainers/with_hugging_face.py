"""The Trainer of transformers on a tiny model: nothing in it knows of Penstock.

    torchrun --nproc-per-node=2 examples/trainers/with_hugging_face.py --checkpoints=FOLDER

The model is made here, of random numbers. It begins where its newest checkpoint ends.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--checkpoints", type=Path, required=True)
    options = parser.parse_args()
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    width = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    model = BertForSequenceClassification(BertConfig(vocab_size=32, num_hidden_layers=1, **width))
    rows = [
        {"input_ids": torch.randint(0, 32, (6,)), "labels": torch.tensor(n % 2)} for n in range(64)
    ]
    arguments = TrainingArguments(
        output_dir=str(options.checkpoints),
        max_steps=options.steps,
        per_device_train_batch_size=4,
        save_strategy="steps",
        save_steps=4,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    newest = get_last_checkpoint(str(options.checkpoints))
    if trainer.is_world_process_zero():
        begin = newest.rpartition("-")[2] if newest else "0"
        print(f"begins at step {begin} with {arguments.world_size} processes", flush=True)
    trainer.train(resume_from_checkpoint=newest)
    if trainer.is_world_process_zero():
        print(f"has taken {trainer.state.global_step} steps", flush=True)


if __name__ == "__main__":
    main()
