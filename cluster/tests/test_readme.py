"""What README.md shows is run as it stands, and its figures are those of the recordings."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from cluster.tests.golden import recordings
from cluster.tests.golden.deviations import DEVIATIONS
from cluster.tests.kubectl import sessions
from cluster.tests.kubectl.kubectl import needs_kubectl

PROJECT: Final = Path(__file__).parents[1]
README: Final = (PROJECT / "README.md").read_text(encoding="utf-8")
PROGRAM: Final = [sys.executable, "-m", "penstock_cluster"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_every_block_is_run() -> None:
    assert [len(blocks(language)) for language in ("python", "console")] == [2, 2]
    assert README.count("\n```") == 2 * 4
    install = '$ pip install "penstock-cluster[test]"\n'  # tests/packaging has it
    assert blocks("console")[0] == install


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_readme.py").write_text(blocks("python")[0])
    options = ["-q", "-p", "penstock_cluster.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_context_manager(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("python")[1], str(PROJECT / "README.md"), "exec"), {})
    assert capsys.readouterr().out.endswith("kubeconfig\n")


@needs_kubectl
def test_the_command(tmp_path: Path) -> None:
    [up, *typed] = re.split(r"^\$ ", blocks("console")[1], flags=re.MULTILINE)[1:]
    command, shown = up.split("\n", 1)
    assert command == "penstock-cluster up &"
    process = subprocess.Popen(
        [*PROGRAM, "up", "--port=0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert re.sub(r":\d+,", ":8480,", said) == shown
            export, *rest = typed
            [value] = re.findall(r"export KUBECONFIG=\$PWD/(\S+)\n", export)
            environment = {**os.environ, "KUBECONFIG": str(tmp_path / value)}
            for one in rest:
                line, answer = one.split("\n", 1)
                done = subprocess.run(
                    ["bash", "-c", line],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=30,
                )
                assert (done.returncode, done.stdout) == (0, answer), done.stderr
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def test_the_figures_are_those_of_the_recordings() -> None:
    steps = sum(len(recordings.load(name).steps) for name in recordings.names())
    differ = sum(len(entry.steps) for entry in DEVIATIONS)
    commands = sum(len(sessions.load(name)) for name in sessions.ORDER)
    assert f"HTTP exchanges of {len(recordings.names())} scenarios" in README
    assert f"{steps - differ} of {steps} steps" in README
    assert f"{commands} of {commands} commands in {len(sessions.ORDER)} sessions" in README


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]+)", README)
    assert len(links) > 2
    assert [link for link in links if not (PROJECT / link).exists()] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "port"),
        (["--nodes", "nowhere.yaml"], "No such file"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "up", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) in [(1, ""), (2, "")]
    assert message in done.stderr
    assert "Traceback" not in done.stderr
