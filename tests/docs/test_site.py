"""The site builds without a warning, and pages are what the code and recorded results say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.mark.parametrize("pages", ["reference", "what-happens-when"])
def test_pages_are_what_their_generators_write(pages: str) -> None:
    command = [sys.executable, f"docs/{pages}/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), "docs", str(tmp_path / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=58,
    )
    assert done.returncode == 0, done.stderr
    assert "An elastic control plane" in (tmp_path / "html" / "index.html").read_text()
    assert (tmp_path / "html" / "reference" / "resources.html").is_file()
