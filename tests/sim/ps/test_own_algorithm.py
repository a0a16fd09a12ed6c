"""The algorithm that the documentation writes is one: it is installed and compared as it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "algorithms.md"
PENSTOCK = Path(sys.executable).with_name("penstock")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder in which the code of the page is an installed package."""
    code, entry = (
        re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for kind in ("python", "toml")
    )
    assert (len(code), len(entry)) == (1, 1)
    (name, target) = re.findall(r'^(\w+) = "(\S+)"$', entry[0], re.MULTILINE)[0]
    package, _, module = target.partition(":")[0].partition(".")
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / f"{module}.py").write_text(code[0])
    metadata = tmp_path / "mine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[penstock.algorithms]\n{name} = {target}\n")
    return tmp_path


def compare(place: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(PENSTOCK), "sim", "ps", "--seed=1", "--json", *arguments],
        capture_output=True, text=True, timeout=55, check=False,
        env={**os.environ, "PYTHONPATH": str(place)},
    )  # fmt: skip


def test_the_algorithm_of_the_page_plans_and_is_compared(installed: Path) -> None:
    done = compare(installed, "--random=2", "--processes=2", "--algorithm=proportional")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["algorithms"]
    assert list(rows)[-1] == "proportional"
    assert 0.3 < rows["proportional"]["median_ratio"] <= 1  # what one worker makes is below 0.1
    assert rows["proportional"]["max_ps_changes"] <= 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--random=1", "--algorithm=dubling"), "known are cold_create"),
        (("--random=1", "--algorithm=cold_create"), "must plan stage Optimize or Adjust"),
        (("--model=xdeepfm", "--algorithm=fitted_ps"), "goes with --random"),
    ],
)
def test_what_cannot_be_compared_is_named(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = compare(tmp_path, *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr
