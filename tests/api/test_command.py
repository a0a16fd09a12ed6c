"""``penstock brain`` as people and supervisors see it: real processes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.api.start import start
from penstock.client import BrainClient, RetryPolicy
from penstock.wire import JobRegistration
from tests.api.service import REGISTRATION

START_SECONDS = 40
PATIENT = RetryPolicy(total_seconds=30)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", "brain", *arguments]


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The Brain on a free port, with a database in the folder."""
    database = f"--database=sqlite+aiosqlite:///{folder}/brain.sqlite"
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            command("--port=0", database, *arguments),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert re.match(r"brain listening on https?://127\.0\.0\.1:", line), (
                folder / "log"
            ).read_text()
            yield line.split()[-1], process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def refused(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., str]:
    """What a Brain that does not start says; in this process, since it ends before it begins."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("penstock.api.start.configure_logging", lambda form, level: None)

    def run(**options: Any) -> str:
        usual: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 0,
            "database": f"sqlite+aiosqlite:///{tmp_path}/brain.sqlite",
            "config": None,
            "settings": [],
            "kubeconfig": None,
            "in_cluster": False,
            "auth": "none",
            "log_format": "text",
            "log_level": "info",
        }
        assert start(**{**usual, **options}) == 1
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        assert said.out == ""
        return said.err

    return run


def test_it_plans_keeps_and_stops_on_sigterm(tmp_path: Path) -> None:
    job = JobRegistration.model_validate(REGISTRATION)
    with running(tmp_path, "--auth=none") as (url, process):
        with BrainClient(url, retry=PATIENT) as client:
            assert client.register("uid-1", job).current_plan == 1
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait(10) == 0
        assert time.monotonic() - began < 10
    with running(tmp_path, "--auth=none") as (url, _), BrainClient(url, retry=PATIENT) as client:
        assert client.job("uid-1").current_plan == 1


def test_a_port_in_use_is_named(refused: Callable[..., str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refused(port=port)
    assert f"port {port} of 127.0.0.1 is in use" in said
    assert "--port" in said


def test_an_unknown_algorithm_stops_the_brain_and_lists_the_known_ones(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "brain.yaml"
    file.write_text("algorithms: {scale_alreduce: {shadow: true}}\n")
    said = refused(config=file)
    assert "'scale_alreduce'" in said
    assert "cold_create" in said
    file.write_text("policies: {AllReduce: {Adjust: [nobody]}}\n")
    assert "'nobody'" in refused(config=file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("administrators: {}", "administrators"),
        ("administrator: {interval_seconds: -1}", "administrator.interval_seconds = -1"),
        ("administrator: {interval_seconds: .nan}", "administrator.interval_seconds"),
        ("executor: {processes: many}", "executor.processes = 'many'"),
        ("algorithms: {cold_create: {params: {servrs: 3}}}", "servrs"),
        ("- a list", "must be a mapping"),
        ("a: [", "neither YAML nor JSON"),
    ],
)
def test_a_bad_configuration_is_refused_with_field_value_and_rule(
    refused: Callable[..., str], tmp_path: Path, content: str, words: str
) -> None:
    file = tmp_path / "brain.yaml"
    file.write_text(content)
    assert words in refused(config=file)


def test_settings_on_the_command_line_are_checked_alike(refused: Callable[..., str]) -> None:
    assert "executor.processes = 0" in refused(settings=["executor.processes=0"])
    assert "must be NAME=VALUE" in refused(settings=["executor.processes"])
    assert "cannot be read" in refused(config=Path("/nowhere/brain.yaml"))


def test_without_tokens_it_listens_nowhere_but_on_loopback(refused: Callable[..., str]) -> None:
    assert "loopback only" in refused(host="0.0.0.0")
    assert "penstock brain token" in refused(auth=None)
    assert "needs a cluster" in refused(auth="kubernetes")
    assert "kubernetes, tokens, none" in refused(auth="maybe")
    assert "cannot be used" in refused(auth=None, kubeconfig=Path("/nowhere/kubeconfig"))


def test_the_cluster_of_the_environment_is_used_unless_auth_is_of_another_kind(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/one:/nowhere/two")
    for auth in (None, "kubernetes"):
        assert "kubeconfig /nowhere/one:/nowhere/two cannot be used" in refused(auth=auth)
    assert "kubeconfig /given cannot be used" in refused(auth=None, kubeconfig=Path("/given"))
    assert "no tokens" in refused(auth="tokens")
    assert "in-cluster configuration cannot be used" in refused(auth=None, in_cluster=True)


def test_a_token_that_it_made_lets_one_in_and_a_changed_file_lets_another(tmp_path: Path) -> None:
    def new() -> tuple[str, str]:
        done = subprocess.run(
            command("token", "ada", "--access=write"),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=True,
        )
        return done.stdout.strip(), done.stderr.partition("configuration:\n")[2]

    first, lines = new()
    file = tmp_path / "brain.yaml"
    file.write_text(lines)
    with running(tmp_path, f"--config={file}") as (url, _):

        def status(token: str) -> int:
            request = urllib.request.Request(
                f"{url}/v1/jobs", headers={"Authorization": f"Bearer {token}"}
            )
            try:
                return int(urllib.request.urlopen(request, timeout=10).status)
            except urllib.error.HTTPError as error:
                return error.code

        assert (status(first), status("wrong")) == (200, 401)
        second, lines = new()
        replacement = tmp_path / "new.yaml"
        replacement.write_text(lines)
        replacement.replace(file)
        end = time.monotonic() + 20
        while status(second) != 200:
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.2)
        assert status(first) == 401
        file.write_text("administrator: {tick_seconds: no}\n")  # reported, and not used
        time.sleep(3)
        assert status(second) == 200


def test_logs_can_be_json(tmp_path: Path) -> None:
    with running(tmp_path, "--auth=none", "--log-format=json", "--log-level=debug"):
        pass
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines
    assert all({"time", "level", "message"} <= set(json.loads(line)) for line in lines)


def test_a_running_brain_has_as_many_executors_as_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "brain.yaml"
    file.write_text("executor: {processes: 1}\n")
    with running(tmp_path, "--auth=none", f"--config={file}") as (url, process):
        parent = psutil.Process(process.pid)

        def burst(start: int) -> int:

            def register(index: int) -> None:
                body = {**REGISTRATION, "name": f"job-{index}"}
                with BrainClient(url, retry=PATIENT) as client:
                    client.register(f"uid-{index}", JobRegistration.model_validate(body))

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(register, range(start, start + 24)))
            return len(
                [child for child in parent.children() if "child" in " ".join(child.cmdline())]
            )

        assert burst(0) == 1
        file.write_text("executor: {processes: 3}\n")
        end, start = time.monotonic() + 20, 100
        while burst(start) < 2:
            start += 100
            assert time.monotonic() < end


@pytest.mark.parametrize(
    ("text", "says"), [(None, "No such file"), ("short\n", "5 characters; must be at least 32")]
)
def test_a_file_with_a_token_is_looked_at_before_anything_listens(
    text: str | None, says: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    said = refused(token_file=file)
    assert f"--token-file={file}: " in said
    assert says in said
