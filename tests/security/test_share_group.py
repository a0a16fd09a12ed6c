"""What the token of a share group opens, and what it does not: each row is tried here.

Who joins a group runs code in the data workers of its members, and has theirs run its own: that is
what a group is. Everything else of a job stays closed to it.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock.data.call_proof import CallSigner
from penstock.data.consuming.consumer import Consumer
from penstock.data.dispatcher import Dispatcher
from penstock.data.errors import DataError, HandshakeError, SignatureError
from penstock.data.pipeline import Pipeline, open_pipeline, pack_pipeline
from penstock.data.protocol import (
    CONSUMER_PATH,
    WORKER_PATH,
    ConsumerReport,
    InputOptions,
    ShareOptions,
    WorkerReport,
    encode,
)
from penstock.data.serving.consumer_connection import ConsumerConnection
from penstock.data.serving.group_reports import GroupReports
from penstock.data.serving.worker import signer
from penstock.data.transport import handshake
from penstock.job.protocol import AGENT_PATH, LEASE_PATH, SESSION_PATH, SUMMARY_PATH
from penstock.parameter_server.protocol import SERVER_PATH
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.server import Changes, Endpoints
from tests.data.planes import Plain

JOB, OTHER, GROUP = (secrets.token_hex(32) for _ in range(3))


def endpoints(dispatcher: Dispatcher, group_token: str = GROUP) -> Any:
    coordinator = Coordinator(JobFacts(), identity="t")
    return Endpoints(coordinator, Changes(coordinator), JOB, dispatcher, group_token).app()


def call(app: Any, token: str, path: str, body: bytes = b"", method: str = "POST") -> int:
    """The status of a call that is proven with a token."""

    async def one() -> int:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            proof = CallSigner(token).sign(method, path, body).authorization
            headers = {"Authorization": proof}
            return (await client.request(method, path, content=body, headers=headers)).status_code

    return asyncio.run(one())


@pytest.mark.parametrize(
    ("path", "method"),
    [
        (SESSION_PATH, "POST"),
        (AGENT_PATH, "POST"),
        (LEASE_PATH, "POST"),
        (SERVER_PATH, "POST"),
        (SUMMARY_PATH, "GET"),
        (CONSUMER_PATH, "POST"),
    ],
)
def test_the_groups_token_opens_one_call_of_a_trainer_and_no_other(path: str, method: str) -> None:
    books = Dispatcher("t")
    body = encode(ConsumerReport(name="c", address="h:1")) if path == CONSUMER_PATH else b""
    assert call(endpoints(books), GROUP, path, body, method) == 401
    assert call(endpoints(books), JOB, path, body, method) != 401
    report = encode(WorkerReport(name="w"))
    assert call(endpoints(books), GROUP, WORKER_PATH, report) == 200


def test_who_reports_by_the_groups_token_is_a_guest_whatever_it_says() -> None:
    books = Dispatcher("t")
    assert call(endpoints(books), GROUP, WORKER_PATH, encode(WorkerReport(name="w"))) == 200
    now = time.monotonic()
    assert books.workers(now) == [], "it takes no place of the job's own data workers"
    assert [one.name for one in books.guests(now)] == ["w"]


def test_tokens_of_other_jobs_and_groups_open_nothing() -> None:
    report = encode(WorkerReport(name="w"))
    assert call(endpoints(Dispatcher("t")), OTHER, WORKER_PATH, report) == 401
    assert call(endpoints(Dispatcher("t"), ""), GROUP, WORKER_PATH, report) == 401


def test_a_call_of_the_group_is_taken_but_once() -> None:
    app, body = endpoints(Dispatcher("t")), encode(WorkerReport(name="w"))
    heard = CallSigner(GROUP).sign("POST", WORKER_PATH, body).authorization

    async def twice() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            headers = {"Authorization": heard}
            return [
                (await client.post(WORKER_PATH, content=body, headers=headers)).status_code
                for _ in range(2)
            ]

    assert asyncio.run(twice()) == [200, 401]


def shake(
    caller: Callable[[socket.socket], Any], listener: Callable[[socket.socket], Any]
) -> tuple[Any, Any]:
    """What both ends of a handshake come to: a peer, or the error."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    came: list[Any] = []

    def answer() -> None:
        try:
            came.append(listener(far))
        except DataError as error:
            came.append(error)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        called = caller(near)
    except DataError as error:
        called = error
    thread.join(20)
    near.close()
    far.close()
    return called, came[0]


@pytest.mark.parametrize(
    ("token", "by_group", "group_token", "taken"),
    [
        (GROUP, True, GROUP, True),
        (JOB, False, GROUP, True),
        (GROUP, False, GROUP, False),
        (JOB, True, GROUP, False),
        (OTHER, True, GROUP, False),
        (GROUP, True, "", False),
        (GROUP, True, OTHER, False),
    ],
    ids=[
        "of the group",
        "of the job",
        "the group's token as the job's",
        "the job's token as the group's",
        "a stranger's",
        "a job without a group",
        "another group",
    ],
)
def test_a_handshake_takes_either_token_as_what_it_is(
    token: str, by_group: bool, group_token: str, taken: bool
) -> None:
    called, answered = shake(
        lambda sock: handshake.call(sock, token, "w", by_group=by_group),
        lambda sock: handshake.answer(sock, JOB, "c", group_token),
    )
    if taken:
        assert called.by_group is by_group
        assert answered.by_group is by_group
        assert called.seals is not None
    else:
        assert isinstance(called, HandshakeError)
        assert isinstance(answered, DataError)


def test_which_token_it_is_cannot_be_changed_on_the_way() -> None:
    """Somebody between the two takes the word out of the caller's hello."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        middle, _ = server.accept()
        onward = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    result: list[Any] = []

    def relay() -> None:
        from penstock.data.transport import frame

        hello = frame.receive(middle, lambda size: memoryview(bytearray(size)), 4096, None)
        said = [*hello.header]
        said[-1] = {key: value for key, value in said[-1].items() if key != "group"}
        frame.send(onward, hello.kind, said)
        challenge = frame.receive(onward, lambda size: memoryview(bytearray(size)), 4096, None)
        frame.send(middle, challenge.kind, challenge.header)
        middle.close()
        onward.close()

    def answer() -> None:
        try:
            result.append(handshake.answer(far, GROUP, "c", GROUP))  # even with one token for both
        except DataError as error:
            result.append(error)

    threads = [threading.Thread(target=work) for work in (relay, answer)]
    for thread in threads:
        thread.start()
    with near, far:
        with pytest.raises(HandshakeError, match="changed on the way"):
            handshake.call(near, GROUP, "w", by_group=True)
        for thread in threads:
            thread.join(20)
    assert isinstance(result[0], DataError)


def line(*, by_group: bool) -> ConsumerConnection:
    return ConsumerConnection("c", socket.socket(), by_group=by_group)


@pytest.mark.parametrize(
    ("signed_with", "by_group", "opened"),
    [
        (GROUP, True, True),
        (JOB, True, False),
        (OTHER, True, False),
        (GROUP, False, True),
        (JOB, False, True),
        (OTHER, False, False),
    ],
    ids=["group-group", "group-job", "group-other", "job-group", "job-job", "job-other"],
)
def test_a_pipeline_is_opened_by_whom_its_signature_is_for(
    signed_with: str, by_group: bool, opened: bool
) -> None:
    """``JOB`` by group: somebody's data worker was handed what only the job's own may open."""
    group = GroupReports("g", 1, GROUP, lambda *_: set())
    packed = pack_pipeline(Pipeline(Plain(4), list, []), signed_with)
    blob = memoryview(packed.blob)
    connection = line(by_group=by_group)
    try:
        token = signer(JOB, group, connection, blob, packed.signature)
        if opened:
            assert isinstance(open_pipeline(blob, packed.signature, token), Pipeline)
        else:
            with pytest.raises(SignatureError):
                open_pipeline(blob, packed.signature, token)
    finally:
        connection.sock.close()


def test_a_job_that_shares_nothing_signs_and_takes_what_it_always_did() -> None:
    """Though the token is in its environment: its trainer says that it is in no group."""
    consumer = Consumer(token=JOB, group_token=GROUP)
    try:
        assert consumer.token == JOB
        host, _, port = consumer.address.rpartition(":")
        with (
            socket.create_connection((host, int(port))) as sock,
            pytest.raises(HandshakeError, match="in which this job is not"),
        ):
            handshake.call(sock, GROUP, "w", by_group=True)
        consumer._options = InputOptions(share=ShareOptions(group="sweep"))
        assert consumer.token == GROUP
        with socket.create_connection((host, int(port))) as sock:
            assert handshake.call(sock, GROUP, "w", by_group=True).by_group
    finally:
        consumer.close()
