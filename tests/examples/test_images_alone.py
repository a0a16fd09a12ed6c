"""The images example runs as a plain script, with nothing of Penstock around it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    options = [f"--data={tmp_path}", "--epochs=3", "--crops=64"]
    done = subprocess.run(
        [sys.executable, "examples/images/train.py", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=55,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    accuracies = [float(value) for value in re.findall(r"accuracy ([\d.]+)", done.stdout)]
    assert len(accuracies) == 3
    assert accuracies[-1] > 0.5  # guessing gives 0.1


def test_it_does_not_import_penstock() -> None:
    assert "import penstock" not in (ROOT / "examples/images/train.py").read_text()
