"""examples/trainers: unmodified programs of each kind as ranks of one world.

Each trains as two processes of one pod, and then goes on from its own checkpoint as one: what a
change of pods asks of it. Their imports are most of what that costs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import ROOT
from tests.patience import patient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def run(processes: int, script: str, *words: str) -> str:
    """One ``penstock run`` on this machine; what its processes print."""
    command = [sys.executable, "-m", "penstock.cli", "run", f"--nproc-per-node={processes}", "--"]
    done = subprocess.run(
        [*command, script, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("library", "option", "begins", "then"),
    [
        ("accelerate", "--epochs", "epoch", ("2", "3")),
        ("hugging_face", "--steps", "step", ("4", "8")),
        ("lightning", "--epochs", "epoch", ("2", "3")),
    ],
)
def test_a_librarys_loop_is_one_world_and_goes_on_as_another(
    library: str, option: str, begins: str, then: tuple[str, str], tmp_path: Path
) -> None:
    script = f"examples/trainers/with_{library}.py"
    folder = f"--checkpoints={tmp_path / 'checkpoints'}"
    first = run(2, script, f"{option}={then[0]}", folder)
    assert first.count("begins at") == 1, "each process is the first"
    assert f"begins at {begins} 0 with 2 processes" in first
    assert f"begins at {begins} {then[0]} with 1 processes" in run(
        1, script, f"{option}={then[1]}", folder
    )
