"""Unmodified programs under ``penstock run --partition auto``: the same losses, and what moved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests import fork_server

SCRIPT: Final = """
import hashlib, json, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self, size):
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=generator), index % 5

class Slow(Images):
    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)

def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), *(nn.Conv2d(32, 32, 3) for _ in range(4))]
    encode = nn.Sequential(*layers).eval().requires_grad_(False)
    head = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.2), nn.Linear(32, 5))
    optimizer = torch.optim.AdamW(head.parameters(), 0.01)
    kind = Slow if "slow" in sys.argv else Images
    loader = DataLoader(kind(75), 4, shuffle=True, num_workers=int(sys.argv[1]))
    validation = DataLoader(kind(10), 4, num_workers=int(sys.argv[1]))
    digest = hashlib.sha256()

    def loss_of(batch):
        images, labels = batch
        with torch.no_grad():
            hidden = encode((images.float() / 255 - 0.5) / 0.2).mean((2, 3))
        return nn.functional.cross_entropy(head(hidden), labels)

    for epoch in range(4):
        for step, batch in enumerate(loader):
            if "teacher" in sys.argv:
                with torch.no_grad():
                    for parameter in encode.parameters():
                        parameter.data.mul_(0.99)
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            digest.update(loss.detach().numpy().tobytes())
            if step == 9:
                head.eval()
                with torch.no_grad():
                    for batch in validation:
                        digest.update(loss_of(batch).numpy().tobytes())
                head.train()
    steps = getattr(loader.__dict__.get("_penstock_epochs"), "calls", None)
    print(json.dumps({"losses": digest.hexdigest(), "moved": getattr(steps, "moved", 0),
                      "compared": getattr(steps, "compared", 0)}))

if __name__ == "__main__":
    main()
"""


def train(
    folder: Path,
    *options: str,
    local: int = 0,
    said: str = "slow",
    look: bool = False,
    share: str = "1",
) -> tuple[Any, str]:
    """What the program printed, and what was said; ``options``: of ``penstock run``, or alone.

    ``share``: of local workers' batches that have what moves; "": it is balanced.
    """
    script = folder / "train.py"
    script.write_text(SCRIPT)
    program = [str(script), str(local), said]
    command = [sys.executable, *program]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    environ["PENSTOCK_PARTITION_SHARE"] = share
    if look:
        code = "from penstock.data.torchpartition.commands import partition; partition()"
        command = [sys.executable, "-c", code, "--json", "--stop", "--", *command]
    elif options:
        penstock = str(Path(sys.executable).with_name("penstock"))
        command = [penstock, "run", *options, "--", *command]
    if look or options:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=150, env=environ, cwd=folder
        )
    else:
        done = fork_server.run(program, timeout=150, env=environ, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_a_frozen_encoder_moves_to_local_workers_and_losses_are_the_same(tmp_path: Path) -> None:
    alone, _ = train(tmp_path, "--partition", "never", said="fast")
    auto, said = train(tmp_path, "--partition", "auto", local=2, said="fast")
    assert auto["losses"] == alone["losses"]
    assert auto["moved"] >= 40, said
    assert auto["compared"] >= 11, said
    assert "partition: the loader of Images: On: " in said


@pytest.mark.slow
def test_losses_are_the_same_where_local_workers_make_it_of_some_batches(tmp_path: Path) -> None:
    alone, _ = train(tmp_path, said="fast")
    for share, moves in (("0.5", True), ("0", False), ("", None)):
        auto, said = train(tmp_path, "--partition", "auto", local=1, said="fast", share=share)
        assert auto["losses"] == alone["losses"]
        if moves is not None:
            used = auto["compared"] + auto["moved"]
            assert (used > 0) is moves, said
            assert used <= 0.6 * 76, said


@pytest.mark.slow
def test_a_frozen_encoder_moves_to_data_workers_and_losses_are_the_same(tmp_path: Path) -> None:
    alone, _ = train(tmp_path)
    auto, said = train(tmp_path, "--data-workers", "2", "--partition", "auto")
    assert auto["losses"] == alone["losses"]
    assert auto["compared"] + auto["moved"] > 0, said


@pytest.mark.slow
def test_a_teacher_that_follows_past_the_versions_stays(tmp_path: Path) -> None:
    alone, _ = train(tmp_path, said="teacher")
    auto, said = train(tmp_path, "--partition", "auto", local=1, said="teacher")
    assert auto == alone
    lines = [line for line in said.splitlines() if "the loader of Images: FellBack" in line]
    assert "Sequential Mutated" in lines[0]


@pytest.mark.slow
def test_a_program_that_is_only_looked_at_says_what_would_move(tmp_path: Path) -> None:
    found, said = train(tmp_path, look=True)
    first = found["loaders"][0]
    assert first["moves"], said
    moving = [call["name"] for call in first["calls"] if call["moves"]]
    assert "Sequential" in moving[-2]
    assert first["bytes"]["crossing"] == 4 * 32 * 4
    assert all(call["why"] for call in first["calls"] if not call["moves"])


def test_a_program_that_keeps_a_batch_to_its_end_ends_without_a_word() -> None:
    script = (
        "import torch\n"
        "from penstock.data.torchpartition.observation import deferred\n"
        "kept = deferred.with_numbers(torch.ones(2), None, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert not done.stderr
