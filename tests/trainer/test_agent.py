"""The agent with programs that behave and programs that do not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import psutil
import pytest

from penstock.crds import environment
from penstock.data.call_proof import REPLY_HEADER, CallChecker
from penstock.job.protocol import AgentReport
from tests.trainer.gpu.fake_nvml import library_path

ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}


def agent(
    code: str, *options: str, environ: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "run", *options, "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**ENVIRON, **(environ or {})},
    )


def finish(process: subprocess.Popen[bytes], timeout: float = 30) -> tuple[int, bytes]:
    output, _ = process.communicate(timeout=timeout)
    return process.returncode, output


def wait_for_file(path: Path, timeout: float = 20) -> str:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


@pytest.mark.parametrize("code", [0, 1, 17])
def test_the_exit_code_is_the_programs(code: int) -> None:
    assert finish(agent(f"raise SystemExit({code})"))[0] == code


def test_a_program_that_was_killed_gives_128_and_the_signal() -> None:
    code, output = finish(agent("import os; os.kill(os.getpid(), 9)"))
    assert code == 128 + signal.SIGKILL
    assert b"the program was ended by SIGKILL: exit code 137" in output


def test_a_program_that_crashes_is_named_at_once_with_a_trainer_away_and_children_left(
    tmp_path: Path,
) -> None:
    crash = f"import signal, os\nos.kill(os.getpid(), signal.SIGSEGV)  # {tmp_path}"
    environ = {environment.TRAINER_ADDRESS: "127.0.0.1:1"}
    code, output = finish(agent(daemon(tmp_path / "pids", crash), environ=environ))
    assert code == 128 + signal.SIGSEGV
    assert b"the program was ended by SIGSEGV: exit code 139" in output
    for pid in (tmp_path / "pids").read_text().split():
        assert_ends(int(pid))


def test_a_signal_that_was_passed_on_is_no_news(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = agent(
        f"import pathlib, time\npathlib.Path({str(ready)!r}).write_text('x')\ntime.sleep(60)"
    )
    wait_for_file(ready)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 128 + signal.SIGTERM
    assert b"was ended by" not in output


def test_a_traceback_is_the_end_of_the_log() -> None:
    code, output = finish(agent("def train():\n    raise ValueError('bad sample 7')\ntrain()"))
    assert code == 1
    assert output.decode().rstrip().endswith("ValueError: bad sample 7")


def test_binary_output_passes_unchanged() -> None:
    noise = bytes(range(256)) * 64
    code, output = finish(
        agent("import sys; sys.stdout.buffer.write(bytes(range(256)) * 64); sys.stdout.flush()")
    )
    assert code == 0
    assert output == noise


def test_sigterm_is_passed_on_and_the_program_ends_in_its_own_way(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = agent(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        f"pathlib.Path({str(ready)!r}).write_text('x')\n"
        "time.sleep(60)"
    )
    wait_for_file(ready)
    process.terminate()
    assert finish(process)[0] == 5


@pytest.mark.parametrize(("answer", "code"), [("raise", 130), ("sys.exit(5)", 5)])
def test_ctrl_c_is_passed_on_as_such_each_time(tmp_path: Path, answer: str, code: int) -> None:
    ready, first = tmp_path / "ready", tmp_path / "first"
    process = agent(
        "import pathlib, sys, time\n"
        "try:\n"
        f"    pathlib.Path({str(ready)!r}).write_text('x')\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        f"    pathlib.Path({str(first)!r}).write_text('x')\n"
        "try:\n"
        "    time.sleep(60)\n"
        f"except KeyboardInterrupt: {answer}\n"
    )
    wait_for_file(ready)
    process.send_signal(signal.SIGINT)
    wait_for_file(first)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == code


def test_a_program_that_ignores_sigterm_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = agent(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(ready)!r}).write_text('x')\n"
        "time.sleep(60)",
        "--grace-seconds=0.5",
    )
    wait_for_file(ready)
    process.terminate()
    code, output = finish(process, timeout=15)
    assert code == 128 + signal.SIGKILL
    assert b"ignored SIGTERM" in output


def test_what_a_program_forked_ends_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code, _ = finish(
        agent(
            "import os, pathlib, time\n"
            "if os.fork() == 0:\n"
            f"    pathlib.Path({str(pids)!r}).write_text(str(os.getpid()))\n"
            "    time.sleep(60)\n"
            "else:\n"
            "    time.sleep(1)"
        )
    )
    assert code == 0
    assert_ends(int(wait_for_file(pids)))


DAEMON = """
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep({seconds})
    os._exit(0)
os.wait()
"""


def daemon(pids: Path, then: str, seconds: float = 60) -> str:
    """A program that puts a child into the background, in a session of its own, and goes on."""
    script = DAEMON.replace("{seconds}", str(seconds)).replace("sys.argv[1]", repr(str(pids)))
    return script + f"while not pathlib.Path({str(pids)!r}).exists(): time.sleep(0.01)\n{then}"


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl, which only Linux has")
def test_a_child_in_the_background_that_holds_the_output_does_not_hold_up_the_end(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    process = agent(daemon(pids, "print('trained', flush=True); sys.exit(7)"))
    code, output = finish(process, timeout=20)  # reads to the end, which the child would hold open
    assert code == 7
    assert output.strip() == b"trained"
    assert_ends(int(pids.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl, which only Linux has")
def test_what_ends_in_the_background_leaves_no_zombie(tmp_path: Path) -> None:
    pids, done = tmp_path / "pids", tmp_path / "done"
    wait = f"while not pathlib.Path({str(done)!r}).exists(): time.sleep(0.05)"
    process = agent(daemon(pids, wait, seconds=0.1))
    pid = int(wait_for_file(pids))
    deadline = time.monotonic() + 15
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline, "the agent did not take its leave of it"
        time.sleep(0.05)
    done.write_text("x")
    assert finish(process)[0] == 0


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--grace-seconds=-1", "--grace-seconds: -1.0; it must be at least 0"),
        ("--grace-seconds=nan", "--grace-seconds: nan; it must be at least 0"),
        ("--trainer=nowhere", "--trainer: 'nowhere'; expected HOST:PORT"),
    ],
)
def test_an_option_out_of_bounds_is_refused_with_its_rule(option: str, words: str) -> None:
    code, output = finish(agent("print('started')", option))
    assert code == 2
    assert words in re.sub(r"[\s│]+", " ", output.decode())
    assert b"started" not in output


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl, which only Linux has")
def test_a_program_dies_with_its_agent(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process = agent(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pids)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    pid = int(wait_for_file(pids))
    process.kill()
    finish(process)
    assert_ends(pid)


def test_a_missing_program_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", "--", "no-such-program"],
        capture_output=True,
        text=True,
        env=ENVIRON,
        timeout=30,
    )
    assert done.returncode == 127
    assert "no-such-program: no such program: look whether the image has it" in done.stderr


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("echo no interpreter is named\n", 0o755, "Exec format error"),
        ("#!/bin/sh\n", 0o644, "Permission denied"),
    ],
)
def test_a_program_that_cannot_be_run_is_named_with_the_reason(
    tmp_path: Path, content: str, mode: int, why: str
) -> None:
    program = tmp_path / "train"
    program.write_text(content)
    program.chmod(mode)
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", "--", str(program)],
        capture_output=True,
        text=True,
        env=ENVIRON,
        timeout=30,
    )
    assert done.returncode == 126
    assert f"{program}: cannot be run: {why}" in done.stderr


def test_a_trainer_that_is_away_does_not_stop_the_program() -> None:
    nowhere = {environment.TRAINER_ADDRESS: "127.0.0.1:9"}
    code, output = finish(agent("import time; time.sleep(1.5); print('done')", environ=nowhere))
    assert code == 0
    assert b"done" in output
    assert output.count(b"did not take a report") == 1, "said more than once"


KNOWN_BEFORE = {
    "version",
    "role",
    "rank",
    "incarnation",
    "node",
    "pod",
    "state",
    "exit_code",
    "draining",
    "usage",
}


class OldTrainer(BaseHTTPRequestHandler):
    """A trainer of the release before: it refuses what it does not know."""

    checker: ClassVar[CallChecker] = CallChecker("")
    known: ClassVar[set[str]] = KNOWN_BEFORE
    refused: ClassVar[list[dict[str, Any]]]
    taken: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        report = msgpack.unpackb(self.rfile.read(int(self.headers["Content-Length"])))
        call = self.checker.check("POST", self.path, self.headers["Authorization"])
        assert call is not None
        assert call.clock is None
        unknown = sorted(report.keys() - self.known)
        (self.refused if unknown else self.taken).append(report)
        reply = msgpack.packb({"trainer": "t", "superseded": False, "hung_seconds": None})
        body = f"{unknown}: Extra inputs are not permitted".encode() if unknown else reply
        status = 400 if unknown else 200
        self.send_response(status)
        self.send_header(REPLY_HEADER, self.checker.prove(call, status, body))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name)
        """Say nothing."""


def test_a_trainer_of_the_release_before_hears_usage_and_the_end() -> None:
    class Heard(OldTrainer):
        refused: ClassVar[list[dict[str, Any]]] = []
        taken: ClassVar[list[dict[str, Any]]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Heard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = {environment.TRAINER_ADDRESS: f"127.0.0.1:{server.server_port}"}
        code, output = finish(agent("import time; time.sleep(2.5)", environ=there))
        server.shutdown()
    assert code == 0
    assert any(report["usage"] for report in Heard.taken)
    assert (Heard.taken[-1]["state"], Heard.taken[-1]["exit_code"]) == ("exited", 0)
    assert len(Heard.refused) == 1, "it was asked again and again"
    assert output.count(b"is of an older release") == 1
    assert b"did not take a report" not in output


def test_the_devices_of_the_program_are_reported(tmp_path: Path) -> None:
    class Heard(OldTrainer):
        known: ClassVar[set[str]] = set(AgentReport.model_fields)
        refused: ClassVar[list[dict[str, Any]]] = []
        taken: ClassVar[list[dict[str, Any]]] = []

    environ = {"PYTHONPATH": library_path(tmp_path), "CUDA_VISIBLE_DEVICES": "1"}
    code = "import time\nwhile True: time.sleep(1)"
    with ThreadingHTTPServer(("127.0.0.1", 0), Heard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environ[environment.TRAINER_ADDRESS] = f"127.0.0.1:{server.server_port}"
        process = agent(code, environ=environ)
        try:
            with_devices = (report["usage"].get("gpus") for report in all_of(Heard.taken))
            (device,) = next(gpus for gpus in with_devices if gpus)
        finally:
            process.terminate()
            finish(process)
            server.shutdown()
    assert (device["uuid"], device["utilization"]) == ("GPU-b", 0.75)


def all_of(reports: list[dict[str, Any]], timeout: float = 30) -> Iterator[dict[str, Any]]:
    """Those that have come and those that will."""
    deadline, index = time.monotonic() + timeout, 0
    while time.monotonic() < deadline:
        if index < len(reports):
            yield reports[index]
            index += 1
        else:
            time.sleep(0.05)
    raise AssertionError(f"not among {index} reports")


def test_a_malformed_address_is_refused_with_its_form() -> None:
    code, output = finish(agent("pass", environ={environment.TRAINER_ADDRESS: "nowhere"}))
    assert code != 0
    assert b"PENSTOCK_TRAINER_ADDRESS: 'nowhere'; expected HOST:PORT" in b" ".join(output.split())


def assert_ends(pid: int, timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} still runs")
