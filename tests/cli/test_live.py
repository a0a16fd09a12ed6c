"""The commands that stay (``logs --follow``, ``plans --watch``, ``top``), as real processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.control_plane import ControlPlane, control_plane, job_manifest, script, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
TALK = """
import itertools, pathlib, sys, time
print("\\x1b]0;not yours\\x07\\x1b[31mred", flush=True)
for number in itertools.count():
    print("number", number, flush=True)
    if pathlib.Path({stop!r}).exists():
        sys.exit(print("goodbye", flush=True))
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@contextlib.contextmanager
def talking(plane: ControlPlane, name: str, folder: Path) -> Iterator[Callable[[], None]]:
    """A job of two workers that talk; what is given tells them to end."""
    stop = folder / "stop"
    command = script(TALK.format(stop=str(stop)))
    counts = {"minReplicas": 2, "maxReplicas": 3}
    plane.apply(
        job_manifest(name, command, strategy="AllReduce", independentWorkers=True, worker=counts)
    )
    plane.wait_for(name, "Running", 30)
    yield stop.touch
    plane.kubectl("delete", "ej", name, "--timeout=30s")
    selector = f"penstock.dev/job={name}"
    plane.kubectl("wait", "--for=delete", "pods", "-l", selector, "--timeout=30s")


@pytest.fixture(scope="module")
def talkers(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The job ``talkers``, for all tests that only listen."""
    with talking(plane, "talkers", tmp_path_factory.mktemp("talkers")):
        yield


@pytest.fixture
def talker(plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """The job ``talker``, for a test that ends it."""
    with talking(plane, "talker", tmp_path) as stop:
        yield stop


class Command:
    """A running command, whose output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], out: int) -> None:
        self.process = process
        self.out = ""
        self._reader = threading.Thread(target=self._read, args=(out,), daemon=True)
        self._reader.start()

    def _read(self, out: int) -> None:
        with contextlib.suppress(OSError):  # a terminal whose other end is closed
            while chunk := os.read(out, 65536):
                self.out += chunk.decode()

    def says(self, pattern: str, seconds: float = 20) -> None:
        """Wait until its output matches."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.out, re.DOTALL):
            assert time.monotonic() < deadline, f"never said {pattern!r}:\n{self.out}"
            assert self._reader.is_alive() or re.search(pattern, self.out, re.DOTALL), self.out
            time.sleep(0.05)

    def ends(self, seconds: float = 20) -> tuple[int, str]:
        """Wait for its end: exit code, and standard error."""
        _, err = self.process.communicate(timeout=seconds)
        self._reader.join(5)
        return self.process.returncode, (err or b"").decode()


@contextlib.contextmanager
def running(plane: ControlPlane, *arguments: str, terminal: bool = False) -> Iterator[Command]:
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.home.kubeconfig),
        "TERM": "xterm-256color",
    }
    for name in ("COLUMNS", "NO_COLOR", "PENSTOCK_BRAIN_URL", "PENSTOCK_BRAIN_TOKEN"):
        environment.pop(name, None)
    if terminal:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    else:
        ours, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *arguments],
        stdout=theirs,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    os.close(theirs)
    try:
        yield Command(process, ours)
    finally:
        process.kill()
        process.communicate(timeout=10)
        with contextlib.suppress(OSError):
            os.close(ours)


def override(plane: ControlPlane, replicas: int) -> Any:
    """A person's plan, made through the Brain."""
    uid = plane.get("ej", "talker")["metadata"]["uid"]
    answer = httpx.post(
        f"{plane.brain_url}/v1/jobs/{uid}/plans",
        json={"policy": "Pin", "roles": {"worker": {"replicas": replicas}}},
        headers={"Authorization": f"Bearer {plane.token}"},
        timeout=10,
        trust_env=False,
    )
    assert answer.status_code < 300, answer.text
    return answer.json()["id"]


def test_logs_are_followed_to_the_end_of_the_pods(
    plane: ControlPlane, talker: Callable[[], None]
) -> None:
    with running(plane, "logs", "talker", "--follow", "--tail=1") as following:
        following.says(r"worker-0 \| number \d+\n.*worker-1 \| number \d+\n")
        talker()
        assert following.ends() == (0, "")
    assert {line for line in following.out.splitlines() if "goodbye" in line} == {
        "worker-0 | goodbye",
        "worker-1 | goodbye",
    }


def test_a_pods_words_do_not_speak_to_the_terminal(plane: ControlPlane, talkers: None) -> None:
    """Titles, clipboards and cursors are the user's own; colours may come through."""
    with running(plane, "logs", "talkers", "--rank=0", "--follow", terminal=True) as following:
        following.says(r"number \d")
        assert "]0;not yours" in following.out
        assert "\x1b]" not in following.out
        assert "\x07" not in following.out
        assert "\x1b[31mred\x1b[0m" in following.out
    with running(plane, "logs", "talkers", "--rank=0", "--follow") as following:
        following.says(r"number \d")
        assert following.out.startswith("\x1b]0;not yours\x07\x1b[31mred\n")


def test_what_is_followed_is_left_with_ctrl_c(plane: ControlPlane, talkers: None) -> None:
    for command in (
        ("logs", "talkers", "--rank=0", "--follow"),
        ("plans", "talkers", "--watch"),
        ("plans", "talkers", "--watch", "-o", "json"),
    ):
        with running(plane, *command) as following:
            following.says(r"\n")
            following.process.send_signal(signal.SIGINT)
            assert following.ends() == (130, ""), command


def test_a_reader_that_has_seen_enough_closes_the_pipe(plane: ControlPlane, talkers: None) -> None:
    for rank in ((), ("--rank=0",)):
        command = [sys.executable, "-m", "penstock.cli", "logs", "talkers", "--follow", *rank]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": str(plane.home.kubeconfig)},
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert b"red" in process.stdout.readline()
            process.stdout.close()
            assert process.wait(20) == 1
            assert process.stderr.read() == b""


def test_plans_are_watched_through_a_restart_of_the_brain_to_the_end_of_the_job(
    plane: ControlPlane, talker: Callable[[], None]
) -> None:
    with (
        running(plane, "plans", "talker", "--watch") as table,
        running(plane, "plans", "talker", "-w", "-o", "json") as stream,
    ):
        for watching in (table, stream):
            watching.says("NoHistory")
        plane.kill("brain")
        until(lambda: _answers(plane), 30)
        made = override(plane, 3)
        table.says(rf"\n +{made} .*Override +worker 3 ", 30)
        talker()
        plane.wait_for("talker", "Succeeded", 40)
        assert table.ends() == (0, "")
        assert stream.ends() == (0, "")
    head, first, *_ = table.out.splitlines()
    [last] = [line for line in table.out.splitlines() if "Override" in line]
    for line, reason in ((first, "NoHistory"), (last, "Override")):
        assert line.index(reason) == head.index("REASON"), "rows that came later line up"
    plans = [json.loads(line) for line in stream.out.splitlines()]
    assert [plan["id"] for plan in plans] == list(range(1, len(plans) + 1))
    assert made in [plan["id"] for plan in plans]


def _answers(plane: ControlPlane) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return bool(plane.brain("/v1/jobs"))
    return False


def test_top_is_live_on_a_terminal(plane: ControlPlane, talkers: None) -> None:
    with running(plane, "top", "--interval=1", terminal=True) as top:
        top.says(r"\x1b\[\?1049h.*STEPS/S.*talkers")
        first = len(top.out)
        top.says(rf"(?s).{{{first}}}.*talkers.*every 1 s; Ctrl-C ends")
        top.process.send_signal(signal.SIGINT)
        assert top.ends() == (130, "")
    assert "\x1b[?1049l" in top.out, "the terminal is given back"
    assert top.out.rindex("\x1b[?25h") > top.out.rindex("\x1b[?25l"), "and its cursor"


def test_a_cluster_that_goes_away_ends_what_is_followed(plane: ControlPlane, talkers: None) -> None:
    with running(plane, "logs", "talkers", "--follow") as following:
        following.says("number")
        plane.kill("cluster")
        code, said = following.ends()
    until(lambda: "talkers" in plane.kubectl("get", "ej", check=False), 40)
    worker = "penstock.dev/job=talkers,penstock.dev/role=worker,penstock.dev/rank=0"
    until(lambda: "number" in plane.kubectl("logs", "-l", worker, check=False), 40)
    assert code == 5
    assert said.startswith("penstock: ")
    assert len(said.splitlines()) == 1
    # Who was there before goes on: they know the server that was started again.
    plane.apply(job_manifest("afterwards", script("pass"), suspend=True))
    until(lambda: plane.get("ej", "afterwards").get("status", {}).get("conditions"), 60)
    until(lambda: _answers(plane), 60)
    plane.kubectl("delete", "ej", "afterwards", "--timeout=30s")
