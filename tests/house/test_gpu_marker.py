"""Tests that need a GPU are left out where there is none, and said to be; never skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import has_cuda_device

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["alone", "xdist"])
def test_what_is_left_out_is_counted(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a device\n")
    (tmp_path / "test_both.py").write_text(
        "import pytest\n\n\ndef test_anywhere(): ...\n\n\n@pytest.mark.gpu\ndef test_there(): ...\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    if has_cuda_device():
        assert "2 passed" in done.stdout
    else:
        assert "1 passed" in done.stdout
        assert "1 tests left out: they are marked gpu" in done.stdout
