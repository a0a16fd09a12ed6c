"""Lightning's Trainer in mid-epoch, with other numbers of samples in each step.

To the data a batch of twice the size is a world of twice the size, so that one process does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from penstock.trainer.follow import lightning as followed
from tests.trainer.follow.worlds import Lines, follow_here

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore"),  # the library's own, of PyTorch's newer releases
]
SAMPLES = 48


@pytest.mark.parametrize("accumulation", [1, 2])
def test_each_epoch_has_every_sample_once(
    accumulation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loops import fit_loop, training_epoch_loop

    fit, epoch = fit_loop._FitLoop, training_epoch_loop._TrainingEpochLoop
    monkeypatch.setattr(fit, "setup_data", vars(fit)["setup_data"])  # is put back
    monkeypatch.setattr(epoch, "reset", vars(epoch)["reset"])
    begin_life = follow_here(monkeypatch)
    followed.install_fit_loop(fit_loop)
    followed.install_epoch_loop(training_epoch_loop)
    seen: list[int] = []

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            seen.extend(batch["sample"].tolist())
            return (self.layer(batch["values"]).squeeze(1) - batch["labels"]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    newest: str | None = None
    for batch, stop in ((8, 2), (4, 5), (8, -1)):
        begin_life()
        saves = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
        trainer = lightning.Trainer(
            max_epochs=2,
            max_steps=stop,
            accumulate_grad_batches=accumulation,
            accelerator="cpu",
            devices=1,
            logger=False,
            callbacks=[saves],
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=str(tmp_path),
        )
        loader = DataLoader(Lines(SAMPLES), batch_size=batch // accumulation, shuffle=True)
        trainer.fit(Line(), loader, ckpt_path=newest)
        newest = str(tmp_path / f"step={stop}.ckpt")
    first, second = seen[:SAMPLES], seen[SAMPLES:]
    assert sorted(first) == list(range(SAMPLES))
    assert sorted(second) == list(range(SAMPLES))
    assert first != second
