"""Programs whose objects are unlike most: being profiled ends none and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.data.profiling.timed_stages import StageTimes, time_stages
from penstock.data.sizes import batch_bytes
from penstock.data.stages import seed_stages, seeded_lists
from tests.data.profiling.test_profile import PENSTOCK, environ
from tests.patience import patient

PROGRAM = """
import dataclasses, os, tempfile
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Stream(IterableDataset):
    def __len__(self):
        raise RuntimeError("the length of a stream is not known")

    def __iter__(self):
        for index in range(200):
            yield torch.full((3,), float(index)).to_sparse()

@dataclasses.dataclass(frozen=True)
class Frozen:
    transforms: list

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

def double(value):
    return value * 2

class Rows(Dataset):
    transform = None

    def __init__(self):
        self.transform = Frozen([double, double])

    def __len__(self):
        return 200

    def __getitem__(self, index):
        try:
            open("none").close()
        except FileNotFoundError:
            return self.transform(torch.full((3,), float(index)))

total = 0.0
for batch in DataLoader(Stream(), batch_size=10, collate_fn=torch.stack):
    total += batch.to_dense().sum().item()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
for batch in DataLoader(Rows(), batch_size=10):
    total += batch.sum().item()
print(total)
"""


@pytest.mark.slow
def test_a_program_prints_what_it_prints_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    program = [sys.executable, str(tmp_path / "train.py")]

    def output(*command: str) -> str:
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            timeout=patient(20),
            env=environ(),
            cwd=tmp_path,
            check=True,
        ).stdout

    # Both loaders run to their end, which one measured batch after the other would not have it do.
    profiled = [PENSTOCK, "profile", "-o", str(tmp_path / "p.json"), "--batches", "10000", "--"]
    assert output(*profiled, *program) == output(*program)


def test_a_sparse_tensor_has_no_known_size() -> None:
    assert batch_bytes([torch.eye(3).to_sparse(), torch.ones(2)]) == 8


class _Choosy:
    """Looks its transforms up before it calls them."""

    def __init__(self, transforms: list[Any], skipped: set[Any]) -> None:
        self.transforms, self.skipped = transforms, skipped

    def __call__(self, value: int) -> int:
        for transform in self.transforms:
            if transform not in self.skipped and transform != self.transforms[-1]:
                value = transform(value)
        return value


class _Numbers:
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


def _double(value: int) -> int:
    return value * 2


def _negate(value: int) -> int:
    return -value


def test_transforms_whose_results_are_sized_are_equal_to_themselves() -> None:
    numbers = _Numbers(_Choosy([_double, _negate, abs], {_negate}))
    time_stages(numbers, StageTimes())
    assert [numbers[index] for index in range(12)] == [2 * index for index in range(12)]


def test_what_cannot_be_changed_is_one_stage() -> None:
    class Frozen(_Choosy):
        def __setattr__(self, name: str, value: object) -> None:
            if hasattr(self, name):
                raise AttributeError(name)
            super().__setattr__(name, value)

    numbers = _Numbers(Frozen([_double, _negate], set()))
    time_stages(numbers, StageTimes())
    seed_stages(numbers)
    assert type(numbers.transform.transforms) is list
    assert not seeded_lists(numbers)
