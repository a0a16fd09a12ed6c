"""The wheels and sdists as others install them."""

from __future__ import annotations

import json
import shutil
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging.environments import PROJECTS, ROOT, Environment, build, needed

FRAMEWORKS = {"kopf", "kubernetes", "fastapi", "sqlmodel", "sqlalchemy"}
LIBRARIES = {"httpx", "numpy", "prometheus_client", "pydantic", "uvicorn", "yaml"}
CONTROL = ["controller", "brain", "scheduler"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def runtime(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What the image ``runtime`` holds."""
    folder = tmp_path_factory.mktemp("runtime") / "venv"
    return Environment(folder, [wheel], needed(["runtime"]))


@pytest.fixture(scope="module")
def control(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What the image ``control`` holds."""
    folder = tmp_path_factory.mktemp("control") / "venv"
    return Environment(folder, [wheel], needed(CONTROL))


@pytest.fixture(scope="module")
def training(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What an image with PyTorch has after `pip install 'penstock[runtime]'`."""
    folder = tmp_path_factory.mktemp("training") / "venv"
    return Environment(folder, [wheel], {*needed(["runtime"]), "torch", *needed([], "torch")})


@pytest.fixture(scope="module")
def cluster_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"), "penstock-cluster")


@pytest.fixture(scope="module")
def local(
    wheel: Path, cluster_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """What `pip install 'penstock[local]'` brings."""
    folder = tmp_path_factory.mktemp("local") / "venv"
    return Environment(folder, [wheel, cluster_wheel], needed(["local"]))


@pytest.fixture(scope="module")
def cluster_alone(cluster_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `pip install penstock-cluster` brings."""
    folder = tmp_path_factory.mktemp("cluster") / "venv"
    return Environment(folder, [cluster_wheel], needed([], "penstock-cluster"))


def modules_of(wheel: Path) -> dict[str, bytes]:
    """Whatever a wheel installs as ours, with its contents."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("penstock/")]
        return {name: archive.read(name) for name in names}


def test_every_file_of_every_room_is_in_the_wheel(wheel: Path) -> None:
    """Templates, style sheets, manifests and types as well as modules, byte for byte."""
    rooms = [path.parents[1] for path in ROOT.glob("*/penstock/*/py.typed")]
    files = {
        path.relative_to(room.parent).as_posix(): path.read_bytes()
        for room in rooms
        for path in room.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    built = modules_of(wheel)
    assert built.keys() == files.keys()
    assert [name for name in files if built[name] != files[name]] == []
    suffixes = {name.rpartition(".")[2] for name in files}
    assert suffixes >= {"css", "html", "mako", "py", "typed", "yaml"}


@pytest.mark.slow
def test_a_wheel_that_is_built_from_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
        top = archive.getnames()[0].partition("/")[0]
    again = build("wheel", tmp_path, source=tmp_path / top)
    assert sorted(modules_of(again).items()) == sorted(modules_of(wheel).items())
    for part in ("charts/penstock/Chart.yaml", "charts/values/kind.yaml", "crds/scale.crd.yaml"):
        assert (tmp_path / top / part).is_file(), part
    assert [*(tmp_path / top / "charts/penstock/dashboards").glob("*.json")]


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
    assert not [
        name
        for name in names
        if "__pycache__" in name
        or (
            name.startswith(".")
            and name not in {".gitignore", ".dockerignore", ".ci/run", ".ci/images"}
        )
    ]


@pytest.mark.parametrize("image", ["runtime", "control"])
def test_an_image_says_what_is_in_it(image: str, request: pytest.FixtureRequest) -> None:
    """With what it has itself: no tool is installed for that."""
    environment: Environment = request.getfixturevalue(image)
    printed = environment.run("python", "-m", "penstock.base.bill_of_materials")
    assert printed.returncode == 0, printed.stderr
    names = {one["name"] for one in json.loads(printed.stdout)["components"]}
    assert names == {*needed(["runtime"] if image == "runtime" else CONTROL), "python"}


def test_the_runtime_needs_no_framework_of_the_control_plane() -> None:
    assert not needed(["runtime"]) & FRAMEWORKS
    assert needed(CONTROL) >= FRAMEWORKS
    assert "torch" not in needed(["runtime"])


@pytest.mark.parametrize(
    "module",
    [
        "penstock.data",
        "penstock.data.worker_process",
        "penstock.trainer.service",
        "penstock.client",
        "penstock.trainer.agent",
    ],
)
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


@pytest.mark.slow
def test_a_ddp_script_trains_as_two_processes_outside_of_the_repository(
    training: Environment,
) -> None:
    shutil.copy(ROOT / "examples/ddp/train.py", training.bin.parent)
    done = training.run("penstock", "run", "--nproc-per-node=2", "--", "train.py", "--epochs=1")
    assert done.returncode == 0, done.stderr
    assert "epoch 0: loss" in done.stdout
    assert "with 2 processes" in done.stdout


@pytest.mark.slow
def test_torchrun_finds_its_backend_in_the_wheel(training: Environment) -> None:
    options = ("-m", "torch.distributed.run", "--rdzv-backend=penstock", "--nproc-per-node=1")
    done = training.run("python", *options, "train.py")
    assert done.returncode == 1
    assert "ValueError: --rdzv-backend=penstock: there is no trainer to ask" in done.stderr


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


HELP = """
import sys
from penstock.cli.main import main
sys.argv = ["penstock", "--help"]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_help_comes_at_once(control: Environment) -> None:
    """What is imported is what is waited for; how long, the machine says and not the command."""
    done = control.run("python", "-c", HELP)
    assert done.returncode == 0, done.stderr
    assert "data-worker" in done.stdout
    imported = done.stderr.split()
    assert not {name.partition(".")[0] for name in imported} & (FRAMEWORKS | LIBRARIES)
    assert len(imported) < 550, "455 of them print the help in color"


def test_the_input_pipeline_pulls_in_no_framework(control: Environment) -> None:
    code = f"import sys, penstock.data; print({FRAMEWORKS | {'torch'}} & set(sys.modules))"
    done = control.run("python", "-c", code)
    assert done.stdout.strip() == "set()", done.stderr


def test_the_sdist_of_the_cluster_builds_the_same_wheel(
    cluster_wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(build("sdist", tmp_path, "penstock-cluster")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(cluster_wheel) as archive:
        modules = {name for name in archive.namelist() if name.startswith("penstock_cluster/")}
    assert {name for name in names if name.startswith("penstock_cluster/")} == modules
    assert {"pyproject.toml", "LICENSE", "README.md", "tests/test_nodes.py"} <= names


def test_no_module_is_in_both_wheels(wheel: Path, cluster_wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert not [one for one in archive.namelist() if "cluster" in one.partition("/")[0]]
    with zipfile.ZipFile(cluster_wheel) as archive:
        tops = {one.partition("/")[0].partition("-")[0] for one in archive.namelist()}
    assert tops == {"penstock_cluster"}


def test_only_what_is_local_needs_the_cluster() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in extras["optional-dependencies"]:
        held = "penstock-cluster" in needed([name])
        assert held == (name in {"local", "all"}), name


def test_both_have_one_version() -> None:
    projects = {
        name: tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for name, folder in PROJECTS.items()
    }
    version = projects["penstock"]["version"]
    assert projects["penstock-cluster"]["version"] == version
    local = projects["penstock"]["optional-dependencies"]["local"]
    assert f"penstock-cluster=={version}" in local
    licenses = {(folder / "LICENSE").read_text() for folder in PROJECTS.values()}
    assert len(licenses) == 1


@pytest.mark.parametrize("image", ["runtime", "control"])
def test_no_image_holds_the_cluster(image: str, request: pytest.FixtureRequest) -> None:
    found: Environment = request.getfixturevalue(image)
    done = found.run("python", "-c", "import penstock_cluster")
    assert "No module named 'penstock_cluster'" in done.stderr


@pytest.mark.parametrize("command", ["up", "demo", "cluster"])
def test_without_the_wheel_of_the_cluster_one_line_says_so(
    control: Environment, command: str
) -> None:
    done = control.run("penstock", command)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert f"penstock {command} needs the wheel penstock-cluster" in line
    assert "pip install penstock-cluster" in line
    assert "pip install 'penstock[local]'" in line


def test_without_the_wheel_the_help_is_the_same(control: Environment, local: Environment) -> None:
    for command in ("up", "demo", "cluster"):
        without, within = (one.run("penstock", command, "--help") for one in (control, local))
        assert (without.returncode, without.stdout) == (0, within.stdout)


POD = """
from penstock_cluster.testing import embedded_cluster

pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "any", "command": ["python", "-c", "print(6 * 7)"]}],
}}
with embedded_cluster() as cluster:
    cluster.create("pods", pod)
    ended = lambda: cluster.get("pods", "p", "default")["status"]["phase"] == "Succeeded"
    cluster.wait(ended, "the pod to end", 30)
    print(cluster.request("GET", "/api/v1/namespaces/default/pods/p/log").text)
"""


def test_the_cluster_alone_runs_a_pod(cluster_alone: Environment) -> None:
    for name in ("penstock.base", "penstock.cli"):
        assert "No module named" in cluster_alone.run("python", "-c", f"import {name}").stderr
    done = cluster_alone.run("python", "-c", POD)
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr


@pytest.mark.parametrize("command", [["penstock", "cluster"], ["penstock-cluster", "up"]])
def test_both_commands_name_a_nodes_file_that_is_not_there(
    local: Environment, command: list[str]
) -> None:
    done = local.run(*command, "--nodes", "nowhere.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No such file" in done.stderr
    assert len(done.stderr.splitlines()) == 1
