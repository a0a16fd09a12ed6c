"""Twelve workers with batches of 150 MB in a pod of 4 GiB: fewer run, and nothing is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.memory_group import memory_group

LIMIT_BYTES = 4 << 30
PROGRAM = textwrap.dedent(
    """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Large(Dataset):
        def __len__(self):
            return 16 * 28

        def __getitem__(self, index):
            return torch.full((150 * 1000 * 1000 // 16 // 4,), float(index))

    if __name__ == "__main__":
        for epoch in range(2):
            first = [int(batch[0, 0]) for batch in DataLoader(Large(), 16, num_workers=12)]
            assert first == list(range(0, 16 * 28, 16)), first
        print("all there")
    """
)


@pytest.mark.slow
def test_twelve_workers_with_large_batches_live_in_a_small_pod(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    penstock = Path(sys.executable).with_name("penstock")
    with memory_group(LIMIT_BYTES) as group:
        done = subprocess.run(
            group.command(
                str(penstock), "run", "--data-workers", "0", "--", sys.executable, str(script)
            ),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        kills = group.kills()
    assert (done.returncode, done.stdout.strip()) == (0, "all there"), done.stderr[-3000:]
    assert kills == 0
    said = [line for line in done.stderr.splitlines() if "make them at once" in line]
    assert said, done.stderr[-3000:]
    assert "of 12 processes make them at once" in said[0]
