"""What a process has trained on and saved, one line each, for `benchmarks.exactly_once`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset


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

    def ended(self) -> None:
        """Training is complete."""
        self._write(ended=True)

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
        values = torch.tensor([float(index % 7), 1.0])
        return {"sample": torch.tensor(index), "values": values, "labels": values.sum()}
