"""The command: what it says where it cannot run, and how it ends."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


def refusal(folder: Path, *options: str) -> str:
    """The one line on stderr of a command that cannot run."""
    done = subprocess.run(
        [*PROGRAM, *options], cwd=folder, capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("penstock-cluster: ")
    return done.stderr.removeprefix("penstock-cluster: ").rstrip("\n")


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


def test_two_on_one_database(tmp_path: Path) -> None:
    with running(tmp_path, "--database=c.sqlite", "--pods-folder=one"):
        said = refusal(tmp_path, "--database=c.sqlite", "--pods-folder=two", "--kubeconfig=two/k")
    assert said == "c.sqlite: database is locked; is another cluster running on it?"


def test_a_kubeconfig_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refusal(tmp_path, "--kubeconfig=file/kubeconfig")
    assert said.startswith("file: ")
