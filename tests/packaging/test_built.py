"""The wheel and the sdist as others install them."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment, build, needed

FRAMEWORKS = {"kopf", "kubernetes", "fastapi", "sqlmodel", "sqlalchemy"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def runtime(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What the image ``runtime`` holds."""
    return Environment(tmp_path_factory.mktemp("runtime") / "venv", wheel, ["runtime"])


@pytest.fixture(scope="module")
def control(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What the image ``control`` holds."""
    folder = tmp_path_factory.mktemp("control") / "venv"
    return Environment(folder, wheel, ["controller", "brain", "scheduler"])


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        modules = {name for name in archive.namelist() if name.startswith("penstock/")}
    assert len(modules) > 300
    rooms = {path.parents[2].name for path in ROOT.glob("*/penstock/*/py.typed")}
    in_sdist = {name.partition("/")[2] for name in names if name.partition("/")[0] in rooms}
    assert modules <= in_sdist
    assert {"pyproject.toml", "LICENSE", "README.md"} <= names
    assert not [name for name in names if "__pycache__" in name or (name.startswith(".")
                and name not in {".gitignore", ".dockerignore", ".ci/run"})]  # fmt: skip


def test_the_runtime_needs_no_framework_of_the_control_plane() -> None:
    assert not needed(["runtime"]) & FRAMEWORKS
    assert needed(["controller", "brain", "scheduler"]) >= FRAMEWORKS
    assert "torch" not in needed(["runtime"])


@pytest.mark.parametrize(
    "module",
    ["penstock.data", "penstock.data.worker_process", "penstock.trainer.service", "penstock.client",
     "penstock.trainer.agent"],
)  # fmt: skip
def test_what_runs_in_pods_imports_in_the_runtime_image(runtime: Environment, module: str) -> None:
    done = runtime.run("python", "-c", f"import {module}")
    assert done.returncode == 0, done.stderr


def test_the_runtime_image_holds_nothing_else(runtime: Environment) -> None:
    for name in (*sorted(FRAMEWORKS), "torch", "pytest"):
        done = runtime.run("python", "-c", f"import {name}")
        assert f"No module named '{name}'" in done.stderr, name


def test_a_program_runs_under_the_agent_in_the_runtime_image(runtime: Environment) -> None:
    done = runtime.run("penstock", "run", "--", str(runtime.bin / "python"), "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr


@pytest.mark.parametrize("command", ["data-worker", "trainer", "run"])
def test_commands_of_pods_are_there_in_the_runtime_image(
    runtime: Environment, command: str
) -> None:
    done = runtime.run("penstock", command, "--help")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["controller", "scheduler", "brain"])
def test_components_start_in_the_control_image(control: Environment, command: str) -> None:
    """As far as the want of a cluster lets them: everything is imported by then."""
    arguments = {"brain": ["--auth=kubernetes", "--in-cluster"]}
    done = control.run("penstock", command, *arguments.get(command, []))
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "onfig" in done.stderr, done.stderr


def test_help_comes_at_once(control: Environment) -> None:
    assert min(control.cpu_seconds("penstock", "--help") for _ in range(3)) < 0.5


def test_the_input_pipeline_pulls_in_no_framework(control: Environment) -> None:
    code = f"import sys, penstock.data; print({FRAMEWORKS | {'torch'}} & set(sys.modules))"
    done = control.run("python", "-c", code)
    assert done.stdout.strip() == "set()", done.stderr
