"""The commands of the pages are typed into a shell, literally and in order, and succeed.

A page finds what its reader would have by then: the examples, a control plane, the job that it
speaks of. What is put in are free ports, fewer epochs where a program trains alone and more where
a job has to last; models are small, and steps sleep rather than compute. `NOT_TYPED` names every
command that is left out, and why.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.charts.rendering import render
from tests.docs.pages import ROOT, Typed, blocks, typed
from tests.docs.shell import Shell
from tests.e2e.control_plane import ControlPlane, control_plane, needs_kubectl
from tests.patience import patient

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

FOLLOWED: Final = "followed from a fresh clone by tests.docs.quickstart, which takes minutes"
HELM: Final = "needs the helm command and a cluster of containers; tests/charts does it in process"
DOCKER: Final = "needs a container runtime; tests/packaging reads the Dockerfile"
MINUTES: Final = "measures or compares for minutes; "
TWENTY_JOBS: Final = "needs the history of twenty jobs; tests/api/test_replay.py has one"
EXAMPLE: Final = "trains for a minute; the same is run by tests/examples/"
NOT_TYPED: Final = {
    ("CONTRIBUTING.md", ""): "sets the project up, or runs this very suite",
    ("README.md", ""): FOLLOWED,
    ("docs/quickstart.md", ""): FOLLOWED,
    ("docs/install.md", ""): HELM,
    ("docs/tasks/kind.md", ""): DOCKER,
    ("charts/penstock/README.md", ""): HELM,
    ("docs/algorithms.md", ".venv/bin/pip install"): "tests/sim/ps/test_own_algorithm installs it",
    ("docs/algorithms.md", "penstock sim"): "tests/sim/ps/test_own_algorithm compares with it",
    ("docs/brain.md", "penstock brain"): "stays, on the usual port; tests/api/test_command has it",
    ("docs/buckets.md", "penstock run"): "a program of one's own; tests/data/test_torch_buckets.py",
    ("docs/buckets.md", "python -m benchmarks"): MINUTES + "tests/benchmarks",
    ("docs/cache.md", "penstock cache run --memory"): "needs two nodes; test_peers.py has three",
    ("docs/cache.md", "penstock run"): "tests/data/cache/test_run_with_cache.py runs a smaller one",
    ("docs/controller.md", "penstock controller --brain-url"): "stays; tests/controller has it",
    ("docs/controller.md", "python -m benchmarks"): MINUTES + "tests/benchmarks",
    ("docs/data-workers.md", "penstock run"): EXAMPLE + "test_images_with_data_workers.py",
    ("docs/input-stalls.md", "penstock"): EXAMPLE + "test_images_profiled.py",
    ("docs/input-stalls.md", "python -m benchmarks"): MINUTES + "tests/benchmarks",
    ("docs/operations/capacity.md", "penstock whatif --policy"): TWENTY_JOBS,
    ("docs/operations/capacity.md", "penstock capacity --policy"): TWENTY_JOBS,
    ("docs/operations/index.md", "kubectl -n"): "kubectl exec is not in the embedded cluster",
    ("docs/sharing.md", "penstock run"): "programs of one's own; tests/data/sharing has such",
    ("docs/partition.md", "penstock run"): "a program of one's own; tests/data/relaying has such",
    ("docs/simulation-ps.md", "penstock sim"): MINUTES + "tests/sim/ps",
    ("docs/simulation-sharing.md", ""): MINUTES + "tests/sim/sharing",
    ("docs/simulation-week.md", ""): MINUTES + "tests/sim/week",
    ("docs/tasks/data-workers.md", "penstock run"): EXAMPLE + "test_images_with_data_workers.py",
    ("docs/tasks/torchrun.md", "python -m benchmarks"): MINUTES + "tests/trainer",
    ("docs/tasks/convert.md", "python -m benchmarks"): "of a folder that the reader has",
    ("docs/tasks/trainers.md", ""): "imports large libraries; tests/examples/test_trainers.py",
    ("docs/tasks/tensorflow.md", ""): "needs TensorFlow; python -m benchmarks.tfdata installs it",
    ("docs/tasks/gpu.md", "penstock run"): EXAMPLE + "test_imagenet.py",
    ("docs/tasks/parameter-servers.md", "python"): EXAMPLE + "test_criteo.py",
    ("examples/criteo/README.md", "python"): EXAMPLE + "test_criteo.py",
    ("examples/diffusion/README.md", "python"): EXAMPLE + "test_offloaded.py",
    ("examples/diffusion/README.md", "penstock run"): EXAMPLE + "test_offloaded.py",
    ("examples/digits/README.md", "python"): EXAMPLE + "test_digits_alone.py",
    ("examples/imagenet/README.md", "penstock run"): EXAMPLE + "test_imagenet.py",
    ("examples/imagenet/README.md", "python"): EXAMPLE + "test_imagenet.py",
    ("examples/images/README.md", "penstock run"): EXAMPLE + "test_images_with_data_workers.py",
    ("examples/images/README.md", "python"): EXAMPLE + "test_images_alone.py, _elastic.py",
}
"""Page and how its commands begin, to the reason."""

LOCAL: Final = [
    "docs/cache.md",
    "docs/embedded-cluster.md",
    "docs/parameter-servers.md",
    "docs/tasks/convert.md",
    "docs/tasks/torchrun.md",
    "docs/training.md",
]
"""Pages whose commands need no control plane."""

ENDING: Final = {
    "docs/parameter-servers.md": "wait %2 && wait %3 && wait %4",
    "docs/training.md": "wait $(jobs -p %2 %3)",
}
"""Pages that leave processes in the background, to how the shell waits for their good end."""

WITHOUT_PENSTOCK: Final = ["docs/controller.md"]
"""Pages whose commands need a cluster in which nothing is installed yet."""

JOB_OF: Final = {
    "docs/brain.md": "digits",
    "docs/cli.md": "",
    "docs/operations/capacity.md": "digits",
    "docs/tasks/heatmap.md": "",
    "docs/tasks/parameter-servers.md": "clicks",
    "docs/tasks/pin.md": "digits",
    "docs/tasks/pytorch.md": "mine",
    "docs/tasks/sizing.md": "sized",
    "examples/criteo/README.md": "",
    "examples/digits/README.md": "",
    "examples/imagenet/README.md": "",
    "examples/images/README.md": "",
}
"""Pages whose commands need one, to the job that runs by then: of the page, or of the examples."""

FEW: Final = {
    "epochs": 1,
    "crops": 16,
    "samples": 4000,
    "test-samples": 1000,
    "cap": 1000,
    "width": 8,
}
"""Options of the examples that say how much there is to do, to what they are here."""

SLEEPING: Final = ("criteo", "digits", "images")
STEP: Final = re.compile(r"^( +)(?:step\.commit|optimizer\.step)\(\)$", re.MULTILINE)
"""Jobs of these examples have to last: what is behind each of their steps leaves the processor."""

FOREVER: Final = "import time\nwhile True:\n    print('step', flush=True)\n    time.sleep(0.1)\n"


def commands(page: str) -> list[Typed]:
    """What is typed of a page."""
    left_out = [start for of, start in NOT_TYPED if of == page]
    return [
        one
        for block in blocks("console")
        if block.page == ROOT / page
        for one in typed(block)
        if not any(one.command.startswith(start) for start in left_out)
    ]


def test_every_command_is_typed_or_left_out_for_a_reason() -> None:
    found = {str(block.page.relative_to(ROOT)) for block in blocks("console")}
    assert {page for page in found if commands(page)} == {*LOCAL, *WITHOUT_PENSTOCK, *JOB_OF}
    for page, start in NOT_TYPED:
        block_commands = [
            one.command
            for block in blocks("console")
            if block.page == ROOT / page
            for one in typed(block)
        ]
        assert any(one.startswith(start) for one in block_commands), (page, start)


def test_the_values_that_helm_is_given_exist() -> None:
    given = [
        dict(pair.split("=", 1) for pair in re.findall(r"--set (\S+=\S+)", one.command))
        for block in blocks("console")
        for one in typed(block)
        if one.command.startswith("helm ")
    ]
    assert len([values for values in given if values]) > 1
    for values in given:
        document: dict[str, Any] = {}
        for path, value in values.items():
            place = document
            *parts, last = path.split(".")
            for part in parts:
                place = place.setdefault(part, {})
            place[last] = True if value == "true" else value
        assert render(document)  # Helm refuses values that the chart does not have


def test_the_backup_holds_what_is_not_in_the_file_yet(tmp_path: Path) -> None:
    lines = [one.command for block in blocks("console") for one in typed(block)]
    [program] = [found[1] for line in lines if (found := re.search(r"python -c +'(.+)'", line))]
    with contextlib.closing(sqlite3.connect(tmp_path / "brain.sqlite")) as brain:
        brain.execute("PRAGMA journal_mode = WAL")
        brain.execute("CREATE TABLE plans (id)")
        brain.execute("INSERT INTO plans VALUES (7)")
        brain.commit()
        program = program.replace("/tmp/copy", str(tmp_path / "copy"))
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=30)
    with contextlib.closing(sqlite3.connect(tmp_path / "copy")) as copy:
        assert copy.execute("SELECT id FROM plans").fetchall() == [(7,)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, as a clone has them."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for program in folder.glob("examples/*/*.py"):
        text = program.read_text()
        for option, few in FEW.items():
            text = re.sub(rf'("--{option}", type=int, default=)[\d_]+', rf"\g<1>{few}", text)
        if program.parent.name in SLEEPING:
            text = text.replace("import argparse\n", "import argparse\nimport time\n", 1)
            text = STEP.sub(r"\g<0>\n\1time.sleep(0.1)", text)
        program.write_text(text)
    job = folder / "examples" / "digits" / "job.yaml"
    job.write_text(job.read_text().replace("--epochs=40", "--epochs=4000"))
    for name in ("train.py", "train_elastic.py"):
        (folder / name).write_text(FOREVER)
    (folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
    return folder


@pytest.fixture
def shell(desk: Path) -> Iterator[Shell]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    with Shell(desk, patient(40), {"PATH": path, "CURL_HOME": str(desk)}) as opened:
        yield opened


@pytest.fixture(scope="module")
def plane(desk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_SCHEDULER_INTERVAL", "5")  # by itself it looks every half minute
        with control_plane(tmp_path_factory.mktemp("plane"), where=desk) as running:
            yield running


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def put(put_in: dict[str, str], text: str) -> str:
    for old, new in put_in.items():
        text = text.replace(old, new)
    return text


def type_all(shell: Shell, page: str, put_in: dict[str, str]) -> None:
    """Type a page's commands; each succeeds, and says what the page shows."""
    for one in commands(page):
        command = put(put_in, one.command)
        follows = re.search(r"\blogs .*(-f|--follow)\b", command)
        status, said = shell.type(f"{command} &" if follows else command)
        if follows:  # until the reader has seen enough
            while not said.strip():
                said += shell.read_until("\n")
            shell.type("kill $!; wait $!")
        for line in one.shown:
            if command.endswith("&"):
                said += shell.read_until(put(put_in, line))
            assert put(put_in, line) in said, f"$ {command}\n{said}"
        assert status == 0, f"$ {command}\n{said}"
        assert "No resources found" not in said, f"$ {command}\n{said}"


@pytest.mark.parametrize("page", LOCAL)
def test_what_needs_no_control_plane(page: str, shell: Shell) -> None:
    server, trainer = str(free_port()), str(free_port())
    put_in = {
        "penstock cluster": f"penstock cluster --port {server}",
        "127.0.0.1:8480": f"127.0.0.1:{server}",
        "8476": trainer,
    }
    type_all(shell, page, put_in)
    assert shell.type(ENDING.get(page, "true"))[0] == 0


@pytest.mark.parametrize("page", WITHOUT_PENSTOCK)
def test_what_needs_an_empty_cluster(page: str, shell: Shell) -> None:
    shell.ok("export KUBECONFIG=$PWD/empty")
    shell.ok(f"penstock cluster --kubeconfig $KUBECONFIG --port {free_port()} &")
    shell.read_until("cluster listening")
    type_all(shell, page, {})


@pytest.mark.parametrize("page", JOB_OF)
def test_what_needs_a_control_plane(
    page: str, shell: Shell, plane: ControlPlane, desk: Path
) -> None:
    manifests = [block.text for block in blocks("yaml") if block.page == ROOT / page]
    shell.ok(f"export KUBECONFIG={plane.home.kubeconfig}")
    if job := JOB_OF[page]:
        example = desk / "examples" / job / "job.yaml"
        if not example.exists():
            example = desk / f"{job}.yaml"
            example.write_text(next(text for text in manifests if f"name: {job}\n" in text))
        shell.ok(f"kubectl apply -f {example}")
        shell.ok(f"kubectl wait --for=condition=Running ej/{job} --timeout=30s")
    if page == "docs/operations/capacity.md":  # once the scheduler has looked
        shell.ok("until penstock capacity --nodes +1 > asked 2>&1; do sleep 1; done")
    if page == "docs/tasks/pin.md":
        uid = plane.get("ej", job)["metadata"]["uid"]
        manifest = re.sub(r"uid: \S+", f"uid: {uid}", manifests[0])
        (desk / "night.yaml").write_text(manifest)
    try:
        type_all(shell, page, {"http://127.0.0.1:8477": plane.brain_url})
    finally:
        plane.kubectl("delete", "ej", "--all", "--timeout=30s")
        plane.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=30s")
