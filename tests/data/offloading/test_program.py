"""A program that declares its frozen encoder: the same losses, wherever the encoder runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fork_server

SCRIPT = """
import hashlib, os, sys, time
import torch
import penstock.data
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((3, 8, 8), index / 100) + torch.arange(8) / 8, index % 5

class Processes(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        time.sleep(0.01)
        return os.getpid()

def main():
    deadline = time.monotonic() + 100
    elsewhere = "DATA_WORKERS" not in os.environ
    while not elsewhere and time.monotonic() < deadline:
        pids = torch.cat(list(DataLoader(Processes(), batch_size=1)))
        elsewhere = any(pids != os.getpid())
    torch.manual_seed(1)
    encode = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 16)
    ).eval().requires_grad_(False)
    encode = penstock.data.offload(encode)
    head = torch.nn.Linear(16, 5)
    optimizer = torch.optim.SGD(head.parameters(), 0.1, momentum=0.9)
    workers = int(os.environ.get("LOCAL", "0"))
    loader = DataLoader(Images(), batch_size=4, shuffle=True, num_workers=workers)
    digest = hashlib.sha256()
    for epoch in range(4):
        if epoch == 2 and "unfreeze" in sys.argv:
            encode.requires_grad_(True)
            optimizer.add_param_group({"params": list(encode.parameters())})
        for images, labels in loader:
            hidden = torch.nn.functional.dropout(head(encode(images)))  # the model draws, too
            loss = torch.nn.functional.cross_entropy(hidden, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            digest.update(loss.detach().numpy().tobytes())
    print("losses", digest.hexdigest())
    counts = getattr(encode, "offloaded", None)
    if counts is not None:
        print("counts", counts.calls, counts.compared, counts.moved)

if __name__ == "__main__":
    main()
"""


def train(
    folder: Path,
    *arguments: str,
    data_workers: int | None = None,
    local: int = 0,
    stage_workers: int = 0,
    partition: str = "",
) -> tuple[str, list[int], str]:
    """Digest of the losses, counts of the encoder's calls, and what was said."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    program = [str(script), *arguments]
    options: list[str] = []
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    environ |= {"LOCAL": str(local), "OMP_NUM_THREADS": "1", "PENSTOCK_PARTITION_SHARE": "1"}
    if data_workers is not None:
        environ |= {"DATA_WORKERS": "1"} if data_workers else {}
        stages = ["--stage-workers", str(stage_workers)] if stage_workers else []
        options = ["--data-workers", str(data_workers), *stages]
    elif partition:
        options = ["--partition", partition]
    if options:
        penstock = str(Path(sys.executable).with_name("penstock"))
        done = subprocess.run(
            [penstock, "run", *options, "--", sys.executable, *program],
            capture_output=True,
            text=True,
            timeout=150,
            env=environ,
            cwd=folder,
        )
    else:
        done = fork_server.run(program, timeout=150, env=environ, cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    counts = [int(one) for one in lines.get("counts", "").split()]
    return lines["losses"], counts, done.stderr


@pytest.mark.slow
def test_a_frozen_encoder_moves_and_every_loss_is_the_same(tmp_path: Path) -> None:
    alone, _, _ = train(tmp_path)
    none, counts, _ = train(tmp_path, data_workers=0)
    assert (none, counts) == (alone, [100, 0, 0])
    two, counts, said = train(tmp_path, data_workers=2)
    assert two == alone
    calls, compared, moved = counts
    assert (calls, compared) == (100, 11), said
    assert moved >= 5, said


@pytest.mark.slow
def test_an_encoder_runs_in_data_workers_of_its_own(tmp_path: Path) -> None:
    alone, _, _ = train(tmp_path)
    staged, counts, said = train(tmp_path, data_workers=1, stage_workers=1)
    assert staged == alone
    assert counts[2] >= 5, said


@pytest.mark.slow
def test_an_encoder_that_is_unfrozen_runs_in_the_program_from_then_on(tmp_path: Path) -> None:
    alone, _, _ = train(tmp_path, "unfreeze")
    local, counts, said = train(tmp_path, "unfreeze", data_workers=0, local=2)
    assert local == alone
    assert counts[2] > 0, said
    lines = [line for line in said.splitlines() if "offload:" in line]
    assert len(lines) == 1, said
    assert "Sequential runs in the program" in lines[0]
    assert "requires a gradient" in lines[0]


@pytest.mark.slow
def test_workers_of_the_loader_are_enough_for_a_partition_that_is_asked_for(tmp_path: Path) -> None:
    alone, _, _ = train(tmp_path)
    declared, counts, said = train(tmp_path, local=2, partition="declared")
    assert declared == alone
    assert counts[2] > 0, said
