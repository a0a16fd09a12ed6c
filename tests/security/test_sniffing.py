"""Whoever hears all that a job says can neither make its calls nor repeat them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from penstock.crds import environment as names
from penstock.data.call_proof import REPLY_HEADER
from penstock.data.consuming.consumer import Consumer
from penstock.data.keys import Purpose, derive_key
from penstock.job.call_auth import CallAuth
from penstock.job.protocol import AGENT_PATH, HEADERS, SESSION_PATH, SUMMARY_PATH
from tests.data.planes import end, eventually
from tests.security.relay import Relay, relaying

TOKEN = "a token of sixty-four digits, or of any other length, of this job"
PLAIN = {key: text for key, text in os.environ.items() if not key.startswith("PENSTOCK_")}
ENVIRON = {**PLAIN, names.JOB_TOKEN: TOKEN}
PROGRAM = "import time; time.sleep(120)"


@pytest.fixture(scope="module")
def trainer() -> Iterator[str]:
    """The address of a job's trainer, a process."""
    command = [sys.executable, "-m", "penstock.cli", "trainer", "--port=0", "--workers=1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRON)
    try:
        assert process.stdout is not None
        found = re.search(r"http://(\S+)", process.stdout.readline())
        assert found
        yield found[1]
    finally:
        process.kill()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def heard(trainer: str) -> Iterator[Relay]:
    """What goes by between trainer, agent, data worker and consumer of a job."""
    with relaying(trainer, raw=True) as relay, ExitStack() as stack:
        environ = {**ENVIRON, names.TRAINER_ADDRESS: relay.address}
        agent = ("run", "--", sys.executable, "-c", PROGRAM)
        for arguments in (agent, ("data-worker",)):
            command = [sys.executable, "-m", "penstock.cli", *arguments]
            stack.callback(end, subprocess.Popen(command, env=environ))
        consumer = Consumer(token=TOKEN, dispatcher=relay.address)
        stack.callback(consumer.close)
        wanted = [b"POST " + path for path in (b"/v1/agent", b"/v1/data/")]
        eventually(lambda: all(one in relay.seen for one in wanted), 60)
        with httpx.Client(auth=CallAuth(TOKEN), trust_env=False) as client:
            client.get(f"http://{relay.address}{SUMMARY_PATH}").raise_for_status()
        eventually(lambda: relay.seen.count(REPLY_HEADER.lower().encode()) >= 3)
        yield relay


def test_neither_the_token_nor_a_key_goes_over_the_network(heard: Relay) -> None:
    assert TOKEN.encode() not in heard.seen
    assert b"bearer" not in heard.seen.lower()
    for purpose in Purpose:
        key = derive_key(TOKEN, purpose)
        assert key not in heard.seen
        assert key.hex().encode() not in heard.seen


def requests(seen: bytes) -> list[bytes]:
    """Whole HTTP requests that went by."""
    found = []
    for one in re.finditer(rb"(?:POST|GET) /v1/\S+ HTTP/1.1\r\n(?:[^\r]+\r\n)+\r\n", seen):
        length = re.search(rb"content-length: (\d+)", one[0].lower())
        stop = one.end() + (int(length[1]) if length else 0)
        if stop <= len(seen):
            found.append(seen[one.start() : stop])
    return found


def said(address: str, request: bytes) -> bytes:
    """What a server answers to bytes."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(request)
        sock.settimeout(10)
        return sock.recv(1 << 16)


def test_a_call_that_is_repeated_is_refused(trainer: str, heard: Relay) -> None:
    made = [one for one in requests(bytes(heard.seen)) if b"Penstock " in one]
    assert {one.split()[1] for one in made} >= {AGENT_PATH.encode(), SUMMARY_PATH.encode()}
    for one in made[:20]:
        assert said(trainer, one).startswith(b"HTTP/1.1 401 "), one


def test_a_proof_serves_for_no_other_call(trainer: str, heard: Relay) -> None:
    proofs = re.findall(rb"uthorization: (Penstock \S+)", bytes(heard.seen))
    assert proofs
    for path in (SESSION_PATH, AGENT_PATH, SUMMARY_PATH):
        method = "GET" if path == SUMMARY_PATH else "POST"
        answer = httpx.request(
            method,
            f"http://{trainer}{path}",
            headers={**HEADERS, "Authorization": proofs[0].decode()},
            trust_env=False,
        )
        assert answer.status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "Penstock"])
def test_the_token_itself_opens_nothing(trainer: str, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {TOKEN}"}
    answer = httpx.get(f"http://{trainer}{SUMMARY_PATH}", headers=headers, trust_env=False)
    assert answer.status_code == 401


def test_a_body_that_is_changed_on_the_way_is_refused(trainer: str) -> None:
    with (
        relaying(trainer, raw=True) as relay,
        httpx.Client(auth=CallAuth(TOKEN), trust_env=False) as client,
    ):
        relay.edit = lambda data: data.replace(b"four", b"five")
        answer = client.post(f"http://{relay.address}{AGENT_PATH}", content=b"four")
    assert answer.status_code == 400
    assert "changed on the way" in answer.text


def test_an_answer_that_is_changed_on_the_way_is_none(trainer: str) -> None:
    with (
        relaying(trainer, raw=True) as relay,
        httpx.Client(auth=CallAuth(TOKEN), trust_env=False) as client,
    ):
        relay.edit = lambda data: data.replace(b'"committed_steps"', b'"committed_steqs"')
        with pytest.raises(httpx.ReadError, match="without proof"):
            client.get(f"http://{relay.address}{SUMMARY_PATH}")
