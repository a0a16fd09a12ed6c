"""``penstock run --save-batches``, ``--load-batches``: programs that know nothing of it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from penstock.crds import environment as names
from penstock.data import saved, saved_program
from penstock.data.errors import SavedError
from penstock.data.saved import BatchWriter
from penstock.data.saved.files import get_index, locked
from tests.data.planes import eventually

SCRIPT = textwrap.dedent(
    """
    import hashlib, os, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Images(Dataset):
        def __init__(self, size):
            self.size = size
        def __len__(self):
            return self.size
        def __getitem__(self, index):
            time.sleep(float(os.environ.get("SLOW", "0")))
            with open("asked", "a") as asked:
                asked.write("x")
            return torch.rand(3, 16, 16) + index, index

    torch.manual_seed(1)
    training = DataLoader(Images(203), batch_size=4, shuffle=True, num_workers=1)
    testing = DataLoader(Images(40), batch_size=8)
    for epoch in range(2):
        for name, loader in (("training", training), ("testing", testing)):
            digest, order, model = (hashlib.sha256() for _ in range(3))
            for batch, indices in loader:
                digest.update(batch.numpy().tobytes())
                order.update(indices.numpy().tobytes())
                model.update(torch.rand(3).numpy().tobytes())  # the model draws too
                print(".", file=sys.stderr, flush=True)
            print(name, len(loader), digest.hexdigest(), order.hexdigest(), model.hexdigest())
    """
)


def command(folder: Path, *options: str, script: str = SCRIPT) -> list[str]:
    (folder / "train.py").write_text(script)
    penstock = str(Path(sys.executable).with_name("penstock"))
    return [penstock, "run", *options, "--", sys.executable, "train.py"]


def environ(slow: float = 0.0) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    return {**kept, "SLOW": str(slow)}


def run(folder: Path, *options: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *options, script=script),
        cwd=folder,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=100,
    )


def epochs(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_plain_script_saves_its_first_epoch_and_then_trains_without_its_dataset(
    tmp_path: Path,
) -> None:
    saving = run(tmp_path, "--save-batches", "made", "--data-workers", "1")
    found = epochs(saving)
    assert [row[:2] for row in found] == [["training", "51"], ["testing", "5"]] * 2
    assert found[0][2] != found[2][2], "the second epoch is another"
    assert "is saved: 51 batches" in saving.stderr
    (tmp_path / "asked").unlink()
    loading = run(tmp_path, "--load-batches", "made")
    again = epochs(loading)
    assert not (tmp_path / "asked").exists()
    assert again[:2] == found[:2], "bits, order, and what the model drew"
    assert [row[2] for row in again[2:]] == [row[2] for row in again[:2]]
    assert [row[4] for row in again] == [row[4] for row in found], "also of the second epoch"
    assert loading.stderr.count("random augmentation does not change any more") == 2
    assert len(saved.load(tmp_path / "made" / "rank-0" / "loader-1")) == 5


@pytest.mark.slow
def test_a_run_that_is_killed_is_gone_on_with(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path, "--save-batches", "made"),
        cwd=tmp_path,
        env=environ(slow=0.02),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    folder = tmp_path / "made" / "rank-0" / "loader-0"
    try:
        eventually(lambda: list(folder.glob("*.tmp")), 60)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)
    # The program runs in a session of its own and dies with the command that started it.
    eventually(lambda: not _holds(folder), 20)
    first = epochs(run(tmp_path, "--save-batches", "made"))[0]
    index = get_index(folder)
    assert index is not None
    assert index.complete
    assert epochs(run(tmp_path, "--load-batches", "made"))[0] == first


def test_batches_of_another_program_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"loader": "DataLoader", "dataset": "list", "batches": 25}
    numbers = itertools.count()
    monkeypatch.setattr(saved_program, "_numbers", numbers)
    with BatchWriter(tmp_path / "rank-0" / "loader-0", source) as writer:
        writer.add(7)
        writer.finish()
    monkeypatch.setenv(names.LOAD_BATCHES, str(tmp_path))
    few: Any = [1, 2, 3]
    with pytest.raises(SavedError, match="they are of another program"):
        saved_program.begin(DataLoader(few, batch_size=4), iter, lambda loader: None)
    monkeypatch.setattr(saved_program, "_numbers", itertools.count())
    hundred: Any = list(range(100))
    found = saved_program.begin(DataLoader(hundred, batch_size=4), iter, lambda loader: None)
    assert list(found) == [7]
    assert len(found) == 1


def _holds(folder: Path) -> bool:
    """Whether somebody still saves to the folder."""
    try:
        with locked(folder):
            return False
    except SavedError:
        return True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--load-batches", "nowhere"), "there is no such folder"),
        (("--load-batches", ".", "--save-batches", "."), "give one of them"),
        (("--save-batches", "train.py"), "--save-batches: train.py"),
        (("--compression", "Zstd"), "go with --data-workers"),
        (("--compression", "gzip", "--data-workers", "1"), "must be one of None, Auto, Zstd"),
        (("--sharding", "often", "--data-workers", "1"), "must be one of Dynamic, Static"),
    ],
)
def test_options_that_cannot_be_are_refused(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    done = run(tmp_path, *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


LEFT = textwrap.dedent(
    """
    import torch
    from torch.utils.data import DataLoader
    loader = DataLoader(list(range(100)), batch_size=4)
    for number, batch in enumerate(loader):
        if number == 9:
            break
    print(sum(int(batch.sum()) for batch in loader))
    """
)


@pytest.mark.slow
def test_an_epoch_that_is_left_early_is_said_and_the_next_is_as_usual(tmp_path: Path) -> None:
    done = run(tmp_path, "--save-batches", "made", script=LEFT)
    assert epochs(done) == [["4950"]]
    assert "was left early: 10 batches of its epoch are saved, and not all" in done.stderr


@pytest.mark.slow
def test_loaders_without_saved_batches_make_theirs(tmp_path: Path) -> None:
    done = run(tmp_path, "--load-batches", ".", script=LEFT)
    assert epochs(done) == [["4950"]]
    assert "makes its batches as usual" in done.stderr
