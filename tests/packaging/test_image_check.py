"""``.ci/images`` builds where a builder and a base are at hand, and else says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.environments import ROOT
from tests.patience import patient

NEEDED: Final = ("bash", "dirname", "env", "mktemp", "sh", "timeout")
FAKE: Final = """#!/bin/sh
echo "$@" >>"{log}"
case "$1" in {case} esac
"""


def check(folder: Path, *targets: str, case: str | None = None) -> tuple[int, str, list[str]]:
    """Run the check with those programs alone; `case` makes a docker that fails as it says."""
    programs = folder / "programs"
    programs.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    log = folder / "calls"
    log.touch()
    if case is not None:
        docker = programs / "docker"
        docker.write_text(FAKE.format(log=log, case=case))
        docker.chmod(0o755)
    wanted = {"PATH": str(programs)}
    kept = {key: os.environ[key] for key in ("HOME", "TMPDIR") if key in os.environ}
    ran = subprocess.run(
        [ROOT / ".ci/images", *targets],
        capture_output=True,
        text=True,
        timeout=patient(60),
        env={**kept, **wanted},
    )
    return ran.returncode, ran.stdout + ran.stderr, log.read_text().splitlines()


def test_without_a_builder_nothing_is_built(tmp_path: Path) -> None:
    code, said, _ = check(tmp_path)
    assert (code, said) == (0, "images: not built: no docker, podman or buildah\n")


def test_without_a_base_nothing_is_built(tmp_path: Path) -> None:
    code, said, calls = check(tmp_path, case="pull) exit 1;;")
    assert code == 0
    assert "python:3.11-slim-bookworm cannot be pulled" in said
    assert calls == ["pull python:3.11-slim-bookworm"]


def test_control_and_runtime_are_built_and_looked_into(tmp_path: Path) -> None:
    code, said, calls = check(tmp_path, case="none) ;;")
    assert (code, said.count("built, and has what it should")) == (0, 2)
    built = [line for line in calls if line.startswith("build ")]
    assert ["--target control" in line for line in built] == [True, False]
    assert sum(line.startswith("run --rm localhost/penstock/") for line in calls) == 2


@pytest.mark.parametrize("step", ["build", "run"])
def test_what_fails_fails_the_check(tmp_path: Path, step: str) -> None:
    code, said, _ = check(tmp_path, "runtime", case=f"{step}) exit 3;;")
    assert code == 3
    assert "has what it should" not in said
