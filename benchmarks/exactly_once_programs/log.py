"""What a process has trained on and saved, one line each, for `benchmarks.exactly_once`.

The data are a line with deterministic noise, so that the loss of a trained model is far from zero.
The learning rate falls by epochs, which mean the same in every world, until the batches that a
model saw last no longer show in its loss.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

LEARNING_RATE = 0.1
_DECAY = 0.1


def learning_rate(epoch: int) -> float:
    """Of all steps of an epoch."""
    return LEARNING_RATE * _DECAY**epoch


def set_learning_rate(optimizer: Any, epoch: int) -> None:
    """The same, of an optimizer: PyTorch's or one that has such groups."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(epoch)


class Log:
    """One process's; the world's size, its rank and its life stand in each line's file name."""

    def __init__(self, folder: Path) -> None:
        life = os.environ["EXACTLY_ONCE_LIFE"]
        name = f"life-{life}-rank-{os.environ.get('RANK', '0')}.jsonl"
        self._file = (folder / name).open("a")
        self._seq = 0

    def seen(self, samples: Iterable[int]) -> None:
        """One batch."""
        self._seq += 1
        self._write(seq=self._seq, samples=list(samples))
        time.sleep(float(os.environ.get("EXACTLY_ONCE_STEP_SECONDS", "0.05")))

    def saved(self, name: str) -> None:
        """A checkpoint has been written."""
        self._write(saved=name, after=self._seq)

    def resumed(self, name: str) -> None:
        """Training goes on from a checkpoint."""
        self._write(resumed=name)

    def ended(self, layer: torch.nn.Linear, samples: Samples) -> None:
        """Training is complete; of what came of it the loss over all samples is written."""
        every = [samples[index] for index in range(len(samples))]
        values = torch.stack([sample["values"] for sample in every])
        labels = torch.stack([sample["labels"] for sample in every])
        with torch.no_grad():
            predicted = layer.cpu()(values).squeeze(1)
        self._write(ended=True, loss=(predicted - labels).pow(2).mean().item())
        self._file.close()

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


class Samples(Dataset[dict[str, torch.Tensor]]):
    """Samples that say which they are."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        values = torch.tensor([index % 7 / 3 - 1, 1.0])
        labels = values.sum() + index * 37 % 11 / 5 - 1
        return {"sample": torch.tensor(index), "values": values, "labels": labels}
