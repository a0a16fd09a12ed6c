"""Without workers a dataset is the program's own: what it becomes is the program's to see."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data.bounded_pickle import dumps_within
from penstock.data.dataset_watch import DatasetWatch, KeepsStateError, state_of
from penstock.data.errors import NotPortableError, PipelineTooLargeError
from penstock.data.pipeline import Pipeline, pack_pipeline
from tests import fork_server

PROGRAM = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Noting(Dataset):
    def __init__(self):
        self.bad = []
    def __len__(self):
        return 200
    def __getitem__(self, index):
        time.sleep(0.01)
        if index % 50 == 40:
            self.bad.append(index)
        return torch.tensor(index)

class Position(IterableDataset):
    def __init__(self):
        self.bad = 0
    def __iter__(self):
        for _ in range(200):
            time.sleep(0.01)
            self.bad += 1
            yield torch.tensor(self.bad)

class Opening(Dataset):
    def __init__(self):
        self.bad, self.file = [], None
    def __len__(self):
        return 200
    def __getitem__(self, index):
        if self.file is None:
            self.file = open(__file__)
        time.sleep(0.01)
        return torch.tensor(index)

if __name__ == "__main__":
    dataset = {"noting": Noting, "position": Position, "opening": Opening}[sys.argv[1]]()
    for epoch in range(3):
        order = [batch.tolist() for batch in DataLoader(dataset, batch_size=10)]
        print(sum(order, []), dataset.bad, flush=True)
"""


def run(folder: Path, kind: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(PROGRAM)
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    if not options:
        return fork_server.run([str(script), kind], timeout=55, env=environ, cwd=folder)
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", *options, "--", sys.executable, str(script), kind]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=55, env=environ, cwd=folder
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noting", "position"])
def test_a_dataset_that_changes_is_the_programs_own(tmp_path: Path, kind: str) -> None:
    alone, served = run(tmp_path, kind), run(tmp_path, kind, "--data-workers", "2")
    assert served.returncode == 0, served.stderr
    assert served.stdout == alone.stdout
    [line] = [one for one in served.stderr.splitlines() if "is not served by data workers" in one]
    assert "making batches changes its dataset" in line


@pytest.mark.slow
def test_a_file_that_is_opened_with_the_first_sample_is_no_change(tmp_path: Path) -> None:
    alone, served = run(tmp_path, "opening"), run(tmp_path, "opening", "--data-workers", "2")
    assert served.returncode == 0, served.stderr
    assert served.stdout == alone.stdout
    assert "not served" not in served.stderr
    assert "leaves after" in served.stderr
    assert "leaves after 0 batches" not in served.stderr


class Holder:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("attributes", "change"),
    [
        ({"position": 0}, lambda one: setattr(one, "position", 1)),
        ({"cache": {}}, lambda one: one.cache.update(a=1)),
        ({"bad": []}, lambda one: one.bad.append(1)),
        ({"seen": deque([1])}, lambda one: one.seen.popleft()),
        ({"dataset": Holder(cache={})}, lambda one: one.dataset.cache.update(a=1)),
    ],
)
def test_a_change_is_seen(attributes: dict[str, Any], change: Any) -> None:
    dataset = Holder(**attributes)
    watch = DatasetWatch(dataset)
    watch.check()
    change(dataset)
    with pytest.raises(KeepsStateError, match=r"num_workers=0, .*Holder\."):
        watch.check()


@pytest.mark.parametrize(
    "change",
    [
        lambda one: setattr(one, "file", object()),
        lambda one: setattr(one, "length", 3),
        lambda one: setattr(one, "array", np.zeros(4)),
        lambda one: None,
    ],
)
def test_what_appears_once_is_no_change(change: Any) -> None:
    dataset = Holder(file=None, array=np.zeros(3), names=["a"])
    watch = DatasetWatch(dataset)
    change(dataset)
    watch.check()
    watch.check()


def test_the_look_ends_whatever_a_dataset_holds() -> None:
    ring = Holder(name="a")
    ring.ring = ring  # type: ignore[attr-defined]  # attributes of any name
    ring.many = {f"{index}": 1 for index in range(10_000)}  # type: ignore[attr-defined]  # so too
    wide = Holder(**{f"a{index}": index for index in range(10_000)})
    assert state_of(ring) == {"name": "a", "many": 10_000}
    assert len(state_of(wide)) == 500


class Copied:
    """Says so when it is copied."""

    copies = 0

    def __init__(self, size: int) -> None:
        self.nbytes = size

    def __reduce__(self) -> tuple[Any, ...]:
        Copied.copies += 1
        return Copied, (self.nbytes,)


def test_what_is_too_large_is_noticed_before_it_is_copied() -> None:
    Copied.copies = 0
    with pytest.raises(PipelineTooLargeError, match="more than 1 MiB when pickled"):
        dumps_within([Copied(1 << 19), Copied(1 << 20), Copied(1)], 1 << 20)
    assert Copied.copies == 1


def test_many_small_things_are_too_large_together() -> None:
    with pytest.raises(PipelineTooLargeError):
        dumps_within([bytes([index]) * 100_000 for index in range(20)], 1 << 20)
    assert len(dumps_within([b"x" * 100_000] * 20, 1 << 20)) < 200_000  # it is one object


def test_a_dataset_in_memory_stays_there_and_the_text_says_what_to_do() -> None:
    pipeline = Pipeline(Holder(samples=np.zeros(300 << 20, np.uint8)), list)
    with pytest.raises(NotPortableError, match="let it open its files by itself"):
        pack_pipeline(pipeline, "token")
