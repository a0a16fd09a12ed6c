"""Whatever the shell gave the process: closed streams, another encoding, no columns, full disks."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.exits import Exit
from penstock_cluster.testing import RunningCluster
from tests.cli.terminal import Terminal
from tests.client.embedded import cluster_with_definitions, condition, job, set_status


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with cluster_with_definitions() as running:
        running.create("elasticjobs.penstock.dev", job("digits"), "default")
        set_status(running, "digits", condition("Running", "2 → 3 \x1b[31mred"), state="Running")
        yield running


def penstock(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", *arguments]


def environment(cluster: RunningCluster, **more: str) -> dict[str, str]:
    base = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "PYTHONUNBUFFERED", "PYTHONIOENCODING")
    }
    return {**base, "KUBECONFIG": str(cluster.kubeconfig_path), **more}


def ran(
    cluster: RunningCluster, *arguments: str, shell: str = "", **more: str
) -> subprocess.CompletedProcess[bytes]:
    """A command as a shell starts it, with redirections behind it."""
    command = ["sh", "-c", f'"$@" {shell}', "sh", *penstock(*arguments)]
    env = environment(cluster, **more)
    return subprocess.run(command, capture_output=True, env=env, timeout=50, check=False)


@pytest.mark.parametrize("arguments", [("list",), ("list", "-o", "json"), ("get", "digits")])
def test_a_full_disk_is_said_once(cluster: RunningCluster, arguments: tuple[str, ...]) -> None:
    done = ran(cluster, *arguments, shell=">/dev/full")
    assert done.returncode == Exit.FAILED
    assert done.stderr.decode() == (
        "penstock: the output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-"])
def test_a_stream_may_be_closed(cluster: RunningCluster, stream: str) -> None:
    assert ran(cluster, "list", shell=stream).returncode == Exit.OK
    missing = ran(cluster, "get", "nosuch", shell=stream)
    assert missing.returncode == Exit.NOT_FOUND
    submitted = ran(cluster, "submit", "-f", "-", shell=f"</dev/null {stream}")
    assert submitted.returncode == Exit.USAGE


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks(cluster: RunningCluster, encoding: str) -> None:
    table = ran(cluster, "describe", "digits", PYTHONIOENCODING=encoding)
    assert table.returncode == Exit.OK, table.stderr
    assert b"2 ? 3" in table.stdout
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        done = ran(cluster, "get", "digits", "-o", form, PYTHONIOENCODING=encoding)
        message = read(done.stdout.decode(encoding))["status"]["conditions"][0]["message"]
        assert message == "2 → 3 \x1b[31mred", "programs get every character"


def test_an_argument_that_is_no_text(cluster: RunningCluster) -> None:
    command = [*map(os.fsencode, penstock("get")), b"\xff"]
    env = environment(cluster, PYTHONUTF8="1")
    done = subprocess.run(command, capture_output=True, env=env, timeout=50, check=False)
    assert done.returncode == Exit.USAGE
    assert b"job \xef\xbf\xbd: not text in this locale's encoding" in done.stderr


@pytest.mark.parametrize("columns", ["0", "nonsense", "-5", "1"])
def test_a_terminal_that_says_nonsense_of_its_width(cluster: RunningCluster, columns: str) -> None:
    done = ran(cluster, "list", COLUMNS=columns)
    assert done.returncode == Exit.OK
    assert b"digits" in done.stdout


def test_what_others_wrote_does_not_steer_the_terminal(cluster: RunningCluster) -> None:
    shown = Terminal(cluster.kubeconfig_path).ok("describe", "digits").out
    assert "2 → 3 �[31mred" in shown
    assert "\x1b" not in shown


def as_seen(cluster: RunningCluster, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command on a terminal of its own."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        penstock(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=environment(cluster)
    )
    os.close(theirs)
    return process, ours


def read_until(terminal: int, text: bytes, seconds: float = 20.0) -> bytes:
    said = b""
    deadline = time.monotonic() + seconds
    while text not in said and time.monotonic() < deadline:
        said += os.read(terminal, 4096)
    return said


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C until it ends: Python loses one that comes as ``input`` begins to wait."""
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)


@pytest.mark.parametrize(("keys", "code"), [(b"\x03", 130), (b"\x04", 1), (b"n\n", 1)])
def test_a_question_may_be_declined(cluster: RunningCluster, keys: bytes, code: int) -> None:
    account: Any = {
        "metadata": {"name": "ours", "labels": {"app.kubernetes.io/part-of": "penstock"}}
    }
    if cluster.find("serviceaccounts", "ours", "default") is None:
        cluster.create("serviceaccounts", account, "default")
    process, terminal = as_seen(cluster, "uninstall")
    try:
        assert b"Delete these 1 objects" in read_until(terminal, b"[y/N]")
        if keys == b"\x03":
            interrupt(process)
        else:
            os.write(terminal, keys)
        assert process.wait(20) == code
    finally:
        process.kill()
        process.wait(10)
        os.close(terminal)
    assert cluster.find("serviceaccounts", "ours", "default") is not None


def test_sigterm_unwinds_a_command(cluster: RunningCluster, tmp_path: Path) -> None:
    """What it started, such as a forwarded port, ends with it."""
    arguments = ("submit", "--name=waits", "--image=i", "--wait", "--", "train")
    process = subprocess.Popen(
        penstock(*arguments), stderr=subprocess.PIPE, env=environment(cluster)
    )
    assert process.stderr is not None
    try:
        assert b"waiting for its end" in process.stderr.readline()
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_doctors_findings_can_be_read_by_programs(cluster: RunningCluster, form: str) -> None:
    done = Terminal(cluster.kubeconfig_path)("doctor", "-o", form)
    assert done.code == Exit.FAILED
    assert {each["verdict"] for each in yaml.safe_load(done.out)} >= {"ok", "fault"}
