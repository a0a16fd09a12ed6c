"""The commands of docs/input-stalls.md, on the example that the page profiles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import patient

ROOT = Path(__file__).parents[2]
PENSTOCK = str(Path(sys.executable).with_name("penstock"))


def run(folder: Path, *command: str) -> Any:
    return subprocess.run(command, capture_output=True, text=True, timeout=patient(20), cwd=folder)


@pytest.mark.slow
def test_the_example_is_profiled_and_asked(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "examples/images/train.py"), "--epochs", "2"]
    done = run(tmp_path, PENSTOCK, "profile", "--batches", "30", "--", *program)
    assert done.returncode == 0, done.stderr
    assert "by cause" in done.stderr
    assert "epoch 2/2" in done.stdout + done.stderr
    for axis, values in (("--cores", "1..8"), ("--workers", "0..4"), ("--data-workers", "0..4")):
        answer = run(tmp_path, PENSTOCK, "whatif", "penstock-profile.json", axis, values, "--json")
        assert answer.returncode == 0, answer.stderr
        assert len(json.loads(answer.stdout)["points"]) in (5, 8)
