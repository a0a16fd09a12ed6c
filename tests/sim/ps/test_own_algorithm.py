"""The algorithm that the documentation writes is one: it is installed and compared as it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from penstock.base.enums import Role, Stage
from penstock.brain.planning import Limits, RoleSpec
from tests.brain.jobs import NOW, allreduce_samples, applied, history, job

PAGE = Path(__file__).parents[3] / "docs" / "algorithms.md"
PENSTOCK = Path(sys.executable).with_name("penstock")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder in which the code of the page is an installed package."""
    code, entry = (
        re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for kind in ("python", "toml")
    )
    assert (len(code), len(entry)) == (2, 1)
    points = tomllib.loads(entry[0])["project"]["entry-points"]["penstock.algorithms"]
    assert list(points) == ["proportional", "climb"]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    for text, (name, target) in zip(code, points.items(), strict=True):
        assert target == f"my_package.{name}:ALGORITHM"
        (tmp_path / "my_package" / f"{name}.py").write_text(text)
    metadata = tmp_path / "mine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[penstock.algorithms]\n"
        + "".join(f"{name} = {target}\n" for name, target in points.items())
    )
    return tmp_path


def compare(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PENSTOCK), "sim", "ps", "--seed=1", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        env={**os.environ, "PYTHONPATH": str(place)},
    )


def test_the_algorithm_of_the_page_plans_and_is_compared(installed: Path) -> None:
    done = compare(installed, "--random=2", "--processes=2", "--algorithm=proportional")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["algorithms"]
    assert list(rows)[-1] == "proportional"
    assert 0.3 < rows["proportional"]["median_ratio"] <= 1  # what one worker makes is below 0.1
    assert rows["proportional"]["max_ps_changes"] <= 3


@pytest.mark.parametrize(
    ("speeds", "wanted"), [((10.0, 18.0), 3), ((10.0, 10.5), None)], ids=["pays", "does not"]
)
def test_the_algorithm_for_allreduce_climbs_while_it_pays(
    installed: Path, speeds: tuple[float, float], wanted: int | None
) -> None:
    spec = spec_from_file_location("climb", installed / "my_package" / "climb.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    algorithm = module.ALGORITHM
    plans = (
        applied(stage=Stage.CREATE, workers=1, at=NOW - 1800),
        applied(stage=Stage.OPTIMIZE, workers=2),
    )
    samples = allreduce_samples([(1, [speeds[0]] * 5), (2, [speeds[1]] * 5)])
    made = algorithm.plan(
        history(samples=samples, plans=plans),
        job(worker=RoleSpec(maximum=4)),
        Limits(),
        algorithm.params(),
    )
    assert (made and made.roles[Role.WORKER].replicas) == wanted


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
