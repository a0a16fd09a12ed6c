"""``penstock trainer``: what it prints, refuses and survives."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.crds import environment
from penstock.job.call_auth import CallAuth
from penstock.job.protocol import HEADERS, PROTOCOL_VERSION, AgentReport, encode
from penstock.trainer.service import bind

ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}


@contextmanager
def trainer(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "trainer", "--port=0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRON, environment.JOB_TOKEN: "secret"},
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        yield process, found[0]
    finally:
        process.kill()
        process.communicate(timeout=10)


def post(url: str, path: str, body: bytes, token: str = "secret") -> httpx.Response:
    auth = CallAuth(token)
    return httpx.post(url + path, content=body, headers=HEADERS, auth=auth, trust_env=False)


def test_it_says_where_it_listens_and_ends_on_sigterm() -> None:
    with trainer() as (process, url):
        assert httpx.get(f"{url}/healthz", trust_env=False).text == "ok"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_the_body_of_an_answer_does_not_wait_for_the_acknowledgement_of_its_head() -> None:
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "trainer", f"--port={port}"],
            capture_output=True,
            text=True,
            env=ENVIRON,
            timeout=30,
        )
    assert done.returncode != 0
    assert f"port {port} on 127.0.0.1 is in use" in " ".join(done.stderr.split())


def test_without_a_token_it_listens_on_loopback_only() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "trainer", "--port=0", "--host=0.0.0.0"],
        capture_output=True,
        text=True,
        env=ENVIRON,
        timeout=30,
    )
    assert done.returncode != 0
    assert "PENSTOCK_JOB_TOKEN: empty" in done.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--port=70000", "--port: 70000; it must be at least 0 and at most 65535"),
        ("--workers=0", "--workers: 0; it must be at least 1"),
        ("--min-workers=-3", "--min-workers: -3; it must be at least 1"),
        ("--slots=65537", "--slots: 65537; it must be at least 1 and at most 65536"),
        ("--lease-seconds=0", "--lease-seconds: 0.0; it must be at least 1"),
        ("--hang-seconds=nan", "--hang-seconds: nan; it must be at least 1"),
    ],
)
def test_an_option_out_of_bounds_is_refused_with_its_rule(option: str, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "trainer", option],
        capture_output=True,
        text=True,
        env=ENVIRON,
        timeout=30,
    )
    assert done.returncode == 2
    assert words in re.sub(r"[\s│]+", " ", done.stderr)


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_the_jobs_token_nothing_is_answered(token: str) -> None:
    with trainer() as (_, url):
        for path in ("/v1/session", "/v1/agent", "/v1/leases"):
            assert post(url, path, b"", token).status_code == 401
        assert httpx.get(f"{url}/v1/summary", trust_env=False).status_code == 401


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xc1\xff garbage", "not msgpack"),
        (b"", "not msgpack"),
        (b"\x80", "AgentReport.role: Field required"),
        (b"\x01", "AgentReport"),
    ],
)
def test_garbage_is_refused_with_the_field(body: bytes, words: str) -> None:
    with trainer() as (_, url):
        answer = post(url, "/v1/agent", body)
        assert answer.status_code == 400
        assert words in answer.text


def test_another_version_is_refused_with_both_numbers() -> None:
    report = AgentReport(role="worker", rank=0, incarnation=0, version=PROTOCOL_VERSION + 1)
    with trainer() as (_, url):
        answer = post(url, "/v1/agent", encode(report))
        assert answer.status_code == 400
        assert (
            f"version: {PROTOCOL_VERSION + 1}; this side speaks {PROTOCOL_VERSION}" in answer.text
        )


def test_a_message_without_end_is_cut_off() -> None:
    with trainer() as (_, url):
        answer = post(url, "/v1/agent", b"x" * (5 << 20))
        assert answer.status_code == 400
        assert "bytes in one message" in answer.text


def test_an_older_incarnation_hears_that_it_was_replaced() -> None:
    with trainer() as (_, url):
        newer = AgentReport(role="worker", rank=0, incarnation=2)
        assert post(url, "/v1/agent", encode(newer)).status_code == 200
        older = AgentReport(role="worker", rank=0, incarnation=1)
        answer = post(url, "/v1/agent", encode(older))
        assert b"superseded\xc3" in answer.content  # msgpack: true


def test_a_torn_journal_is_taken_up_and_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "ledger.journal").write_bytes(b"PNSTKLG1\x10\x00\x00\x00torn")
    with trainer(f"--state-dir={tmp_path}") as (process, url):
        assert httpx.get(f"{url}/healthz", trust_env=False).text == "ok"
        process.terminate()
        _, log = process.communicate(timeout=10)
    [line] = [line for line in log.splitlines() if "ledger.journal" in line]
    assert "cannot be used" in line
    assert "cut off or damaged" in line
