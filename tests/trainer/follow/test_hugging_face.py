"""Hugging Face's Trainer in mid-epoch, with other numbers of samples in each step.

To the data a batch of twice the size is a world of twice the size, so that one process does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.trainer.follow import hugging_face
from tests.trainer.follow.worlds import Lines, follow_here

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SAMPLES = 48


@pytest.mark.parametrize("accumulation", [1, 2])
def test_each_epoch_has_every_sample_once(
    accumulation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers import trainer as module

    for name in ("set_initial_training_values", "_init_training_state", "_prepare_for_training"):
        monkeypatch.setattr(module.Trainer, name, vars(module.Trainer)[name])  # is put back
    begin_life = follow_here(monkeypatch)
    hugging_face.install(module)
    seen: list[int] = []

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, sample: Any, values: Any, labels: Any) -> dict[str, Any]:
            seen.extend(sample.tolist())
            return {"loss": (self.layer(values).squeeze(1) - labels).pow(2).mean()}

    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop |= state.global_step == stop

    newest: str | None = None
    for batch, stop in ((8, 2), (4, 5), (8, -1)):
        begin_life()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=2,
            per_device_train_batch_size=batch // accumulation,
            gradient_accumulation_steps=accumulation,
            save_strategy="steps",
            save_steps=1,
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = transformers.Trainer(
            model=Line(), args=arguments, train_dataset=Lines(SAMPLES), callbacks=[Stops()]
        )
        trainer.train(resume_from_checkpoint=newest)
        newest = str(tmp_path / f"checkpoint-{stop}")
    first, second = seen[:SAMPLES], seen[SAMPLES:]
    assert sorted(first) == list(range(SAMPLES))
    assert sorted(second) == list(range(SAMPLES))
    assert first != second
