"""The command: what it says where it cannot run, and how it ends."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock_cluster.commands import main
from penstock_cluster.foreground import error_line

PROGRAM = [sys.executable, "-m", "penstock_cluster", "up", "--port=0"]


@contextmanager
def running(folder: Path, *options: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """The command, once it says that it listens."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*PROGRAM, *options], cwd=folder, stdout=pipe, stderr=pipe, text=True, **more
    ) as process:
        try:
            assert process.stdout is not None
            assert "listening on" in process.stdout.readline()
            yield process
        finally:
            process.kill()


Refusal = Callable[..., str]


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Refusal:
    """Run the command in ``tmp_path``, where it cannot run; its one line on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*options: str) -> str:
        assert main(["up", "--port=0", *options]) == 1
        said = capfd.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1), said
        assert said.err.startswith("penstock-cluster: ")
        return said.err.removeprefix("penstock-cluster: ").rstrip("\n")

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("cluster.sqlite: database is locked"), "cluster.sqlite: database is locked"),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), "/a/b: Permission denied"),
        (OSError(errno.EADDRINUSE, "cannot listen on 1"), "cannot listen on 1"),
        (ValueError("over\n  two lines"), "over two lines"),
    ],
)
def test_an_error_is_one_line_with_its_file(error: Exception, line: str) -> None:
    assert error_line(error) == line


def test_two_on_one_database(tmp_path: Path, refusal: Refusal) -> None:
    with running(tmp_path, "--database=c.sqlite", "--pods-folder=one"):
        said = refusal("--database=c.sqlite", "--pods-folder=two", "--kubeconfig=two/k")
    assert said == "c.sqlite: database is locked; is another cluster running on it?"


def test_two_in_one_folder(tmp_path: Path, refusal: Refusal) -> None:
    with running(tmp_path):
        said = refusal("--kubeconfig=other")
    assert said.endswith("pods holds the pods of a cluster that is running; choose another folder")


def test_a_database_that_is_none(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "letter.txt").write_text("Dear cluster,\n" * 1000)
    said = refusal("--database=letter.txt")
    assert said.startswith("letter.txt: file is not a database; choose another file")


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (b"nodes: [", "nodes.yaml: not YAML: while parsing"),
        (b"nodes: \xff", "nodes.yaml: not YAML: "),
        (b"nodes: [{name: 2026-13-45}]", "nodes.yaml: not YAML: month must be in 1..12"),
        (b"[" * 5000, "nodes.yaml: not YAML: "),
        (b"nodes: [{name: 5}]", "nodes.yaml: nodes[0].name: 5: "),
        (b"nodes: [{name: a, taints: 5}]", "nodes.yaml: nodes[0].taints: 5: "),
        (b"nodes: [{name: a, cpu: .inf}]", "nodes.yaml: nodes[0].cpu: inf: "),
        (b"nodes: [{name: a, labels: {bad key!: b}}]", "metadata.labels: Invalid value"),
        (b"nodes: [{name: a, taints: [{key: 5, effect: NoExecute}]}]", "json: cannot unmarshal"),
    ],
)
def test_a_nodes_file_that_cannot_be(
    tmp_path: Path, refusal: Refusal, nodes: bytes, line: str
) -> None:
    (tmp_path / "nodes.yaml").write_bytes(nodes)
    assert line in refusal("--nodes=nodes.yaml")


def test_a_kubeconfig_that_cannot_be_written_is_named(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "file").write_text("")
    said = refusal("--kubeconfig=file/kubeconfig")
    assert said.startswith("file: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_in_order_when_it_is_told_to(tmp_path: Path, number: int) -> None:
    # Whoever runs the tests may do so with nohup, which is another test.
    heard = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731  one use, named
    with running(tmp_path, "--database=c.sqlite", preexec_fn=heard) as process:
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        assert (process.returncode, said) == (0, "")
    assert not list(tmp_path.glob("c.sqlite-*")), "the database was not closed"


def test_under_nohup_a_closed_terminal_does_not_end_it(tmp_path: Path) -> None:
    with running(tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as up:
        up.send_signal(signal.SIGHUP)
        status = Path(f"/proc/{up.pid}/status").read_text()
        [ignored] = re.findall(r"^SigIgn:\t(\w+)$", status, re.MULTILINE)
        assert int(ignored, 16) >> (signal.SIGHUP - 1) & 1
        assert up.poll() is None


def test_ctrl_c_before_it_listens_is_no_traceback(tmp_path: Path) -> None:
    """Also where Python would swallow it: in a finalizer, say, of an import."""
    program = """
import os, signal, weakref
from penstock_cluster import commands, foreground

class Thing: pass

def interrupted(*_):
    thing = Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    print("still there")

foreground.run_cluster = interrupted
commands.main(["up", "--port=0"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        # A suite that a shell started in the background ignores it, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
