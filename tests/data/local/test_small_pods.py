"""Twelve workers with batches of 150 MB in a pod of 4 GiB: fewer run, and nothing is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT_BYTES = 4 << 30
FOLDERS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
PROGRAM = textwrap.dedent(
    """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Large(Dataset):
        def __len__(self):
            return 16 * 40

        def __getitem__(self, index):
            return torch.full((150 * 1000 * 1000 // 16 // 4,), float(index))

    if __name__ == "__main__":
        for epoch in range(2):
            first = [int(batch[0, 0]) for batch in DataLoader(Large(), 16, num_workers=12)]
            assert first == list(range(0, 16 * 40, 16)), first
        print("all there")
    """
)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of this test's own, as a container has one."""
    for parent in FOLDERS:
        limit = parent / "memory.limit_in_bytes"  # version 1
        if not limit.exists():
            limit = parent / "memory.max"
        made = parent / f"penstock-test-{os.getpid()}"
        try:
            made.mkdir()
            (made / limit.name).write_text(str(LIMIT_BYTES))
        except OSError:
            if made.exists():
                made.rmdir()
            continue
        yield made
        deadline = time.monotonic() + 20
        while made.exists() and time.monotonic() < deadline:
            try:
                made.rmdir()
            except OSError:  # a process of it is still ending
                time.sleep(0.1)
        return
    pytest.skip("needs the right to make a memory cgroup, which containers mostly have not")


def kills(cgroup: Path) -> int:
    """How many processes the kernel has killed for want of memory."""
    for name in ("memory.oom_control", "memory.events"):
        if (cgroup / name).exists():
            rows = (line.split() for line in (cgroup / name).read_text().splitlines())
            return int({row[0]: row[1] for row in rows}["oom_kill"])
    raise AssertionError("this kernel does not count")


@pytest.mark.slow
def test_twelve_workers_with_large_batches_live_in_a_small_pod(
    cgroup: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    penstock = Path(sys.executable).with_name("penstock")
    enter = f"echo $$ > {cgroup}/cgroup.procs && exec"
    command = f"{enter} {penstock} run --data-workers 0 -- {sys.executable} {script}"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "all there"), done.stderr[-3000:]
    assert kills(cgroup) == 0
    said = [line for line in done.stderr.splitlines() if "make them at once" in line]
    assert said, done.stderr[-3000:]
    assert "of 12 processes make them at once" in said[0]
