"""The dispatcher's two calls over HTTP, as the trainer serves them and processes make them."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from penstock.base.enums import Guarantee
from penstock.data import dispatcher as dispatching
from penstock.data import protocol, reporting
from penstock.data.call_guard import guard_calls
from penstock.data.call_proof import REPLY_HEADER, CallChecker, CallSigner
from penstock.data.dispatcher import Dispatcher, routes
from penstock.data.protocol import (
    CONSUMER_PATH,
    MAX_BYTES,
    WORKER_PATH,
    ConsumerReply,
    ConsumerReport,
    InputOptions,
    WorkerReply,
    WorkerReport,
    consumers_digest,
    decode,
    encode,
)
from penstock.data.reporting import Reporter
from penstock.job.call_auth import CallAuth
from penstock.job.protocol import AGENT_PATH, SESSION_PATH
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.server import Changes, Endpoints

Answer = bytes | Callable[[bytes], bytes]
Serving = Callable[[Answer], str]
CONSUMER = ConsumerReport(name="c", address="10.0.0.1:5", left_out=1, newest_left_out=("sample 3",))


def call(
    dispatcher: Dispatcher, path: str, body: bytes = b"", method: str = "POST", **headers: str
) -> httpx.Response:
    """Call with the token, or with these headers instead."""
    wanted = {key: text.encode("latin-1") for key, text in headers.items()}
    auth = None if headers else CallAuth("secret")
    coordinator = Coordinator(JobFacts(), identity="t")
    app = Endpoints(coordinator, Changes(coordinator), "secret", dispatcher).app()

    async def one() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return await client.request(method, path, content=body, headers=wanted, auth=auth)

    return asyncio.run(one())


def test_they_are_introduced_to_each_other_and_told_what_the_job_wants() -> None:
    wanted = InputOptions(guarantee=Guarantee.AT_MOST_ONCE, skip_bad=True)
    books = Dispatcher("me", lambda: wanted)
    told = decode(ConsumerReply, call(books, CONSUMER_PATH, encode(CONSUMER)).content)
    assert (told.dispatcher, told.workers, told.options) == ("me", 0, wanted)
    served = decode(WorkerReply, call(books, WORKER_PATH, encode(WorkerReport(name="w"))).content)
    assert [one.address for one in served.consumers] == ["10.0.0.1:5"]
    summary = call(books, "/v1/summary", method="GET").json()
    assert summary["data_workers"] == 1
    assert summary["input"] == {
        "lost_steps": 0,
        "samples_left_out": 1,
        "newest_left_out": ["sample 3"],
    }


@pytest.mark.parametrize("path", [CONSUMER_PATH, WORKER_PATH])
@pytest.mark.parametrize(
    "token",
    [
        "",
        "Bearer wrong",
        "Bearer secret",
        "Basic secret",
        "Bearer",
        "Bearer sécret",
        "Penstock",
        "Penstock ...",
        "Penstock 1.2.3.sécret",
        CallSigner("wrong").sign("POST", CONSUMER_PATH, encode(CONSUMER)).authorization,
        CallSigner("secret").sign("GET", CONSUMER_PATH, encode(CONSUMER)).authorization,
        CallSigner("secret").sign("POST", "/v1/elsewhere", encode(CONSUMER)).authorization,
    ],
)
def test_without_the_jobs_token_nobody_gets_in(path: str, token: str) -> None:
    books = Dispatcher("me")
    answer = call(books, path, encode(CONSUMER), Authorization=token)
    assert answer.status_code == 401
    assert books.consumers(0.0) == []


@pytest.mark.parametrize("path", [CONSUMER_PATH, WORKER_PATH])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not msgpack"),
        (b"\xc1garbage", "not msgpack"),
        (b"\x90", "should be a valid dictionary"),
        (protocol.msgpack.packb({"version": 9, "name": "x"}), "version: 9; this side speaks 1"),
        (protocol.msgpack.packb({"name": ""}), "Report.name: String should have at least 1"),
        (protocol.msgpack.packb({"name": "x", "new": 1, "address": "a:1"}), "Report."),
        (b"\0" * (MAX_BYTES + 1), f"more than {MAX_BYTES} bytes"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(path: str, body: bytes, said: str) -> None:
    answer = call(Dispatcher("me"), path, body)
    assert answer.status_code == 400
    assert said in answer.text


@pytest.mark.parametrize("path", [CONSUMER_PATH, WORKER_PATH])
def test_only_reports_are_taken(path: str) -> None:
    answer = call(Dispatcher("me"), path, method="GET", Authorization="any")
    assert answer.status_code == 405


def test_more_participants_than_there_may_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.data.dispatcher.MAX_CONSUMERS", 0)
    monkeypatch.setattr("penstock.data.dispatcher.MAX_WORKERS", 0)
    books = Dispatcher("me")
    for path, report in ((CONSUMER_PATH, CONSUMER), (WORKER_PATH, WorkerReport(name="w"))):
        answer = call(books, path, encode(report))
        assert answer.status_code == 409
        assert "at most 0 may" in answer.text


@pytest.mark.parametrize("path", [CONSUMER_PATH, WORKER_PATH, SESSION_PATH, AGENT_PATH])
def test_a_caller_that_leaves_within_its_message_is_no_fault_of_the_server(path: str) -> None:
    coordinator = Coordinator(JobFacts(), identity="t")
    app = Endpoints(coordinator, Changes(coordinator), "secret", Dispatcher("me")).app()
    coming = iter(
        [{"type": "http.request", "body": b"ha", "more_body": True}, {"type": "http.disconnect"}]
    )
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return next(coming)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    said = CallSigner("secret").sign("POST", path, b"ha").authorization
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", said.encode())],
    }
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 400
    assert b"left within its message" in sent[1]["body"]


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Starts something that answers the first call with these bytes, or what makes them of it."""
    listeners = []

    def start(answer: Answer) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def work() -> None:
            try:
                sock, _ = listener.accept()
                with sock:
                    said = sock.recv(65536)
                    if answer:
                        sock.sendall(answer if isinstance(answer, bytes) else answer(said))
                    else:
                        sock.recv(1)  # until the caller gives up
            except OSError:
                return

        threading.Thread(target=work, daemon=True).start()
        return "{}:{}".format(*listener.getsockname())

    yield start
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-hello\r\n", "does not answer"),
        (b"", "does not answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "does not answer"),
        (b"HTTP/1.1 401 No\r\nContent-Length: 5\r\n\r\ntoken", "refused a report: token"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\norder", "without proof that it is of this"),
        (b"HTTP/1.1 409 No\r\nContent-Length: 5\r\n\r\norder", "without proof that it is of this"),
    ],
)
def test_a_dispatcher_that_talks_nonsense_or_hangs_is_said_once_and_done_without(
    serving: Serving,
    answer: bytes,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(reporting, "TIMEOUT_SECONDS", 0.3)
    caller = Reporter(serving(answer), "secret")
    try:
        assert caller.report(CONSUMER_PATH, CONSUMER, ConsumerReply) is None
        assert said in caplog.text
    finally:
        caller.close()


def test_an_answer_of_another_protocol_is_an_error_that_says_so(
    serving: Serving,
) -> None:
    body = protocol.msgpack.packb({"dispatcher": "d", "workers": 0, "news": 1})
    checker = CallChecker("secret")

    def answer(said: bytes) -> bytes:
        found = re.search(rb"Authorization: (.*)\r\n", said)
        assert found is not None
        call = checker.check("POST", CONSUMER_PATH, found[1].decode())
        assert call is not None
        proof = checker.prove(call, 200, body)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{REPLY_HEADER}: {proof}\r\n\r\n"
        return head.encode() + body

    caller = Reporter(serving(answer), "secret")
    try:
        with pytest.raises(protocol.ProtocolError, match=r"ConsumerReply.news"):
            caller.report(CONSUMER_PATH, CONSUMER, ConsumerReply)
    finally:
        caller.close()


class Telling(Dispatcher):
    """One that says when a data worker has called."""

    def __init__(self) -> None:
        super().__init__("me")
        self.called = asyncio.Event()

    def worker(self, report: WorkerReport, now: float, *, guest: bool = False) -> WorkerReply:
        self.called.set()
        return super().worker(report, now, guest=guest)


def test_a_data_worker_that_knows_all_is_answered_when_another_is_to_be_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "REPORT_SECONDS", 3600.0)
    books = Telling()
    app = Starlette(routes=routes(books, guard_calls("secret", MAX_BYTES)))
    auth = CallAuth("secret")

    async def told() -> list[list[str]]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:

            async def serves(known: str) -> WorkerReply:
                path, body = f"{WORKER_PATH}{known}", encode(WorkerReport(name="w"))
                return decode(
                    WorkerReply, (await client.post(path, content=body, auth=auth)).content
                )

            replies = [await serves(""), await serves("?known=something-else")]
            for closed in (False, True):
                known = f"?known={consumers_digest(replies[-1].consumers)}"
                books.called.clear()
                held = asyncio.create_task(serves(known))
                await books.called.wait()
                body = encode(CONSUMER.model_copy(update={"closed": closed}))
                await client.post(CONSUMER_PATH, content=body, auth=auth)
                replies.append(await held)
            return [[one.name for one in reply.consumers] for reply in replies]

    assert asyncio.run(told()) == [[], [], ["c"], []]


def test_nobody_is_held_for_longer_than_until_the_next_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "REPORT_SECONDS", 0.05)
    body = encode(WorkerReport(name="w"))
    reply = call(Dispatcher("me"), f"{WORKER_PATH}?known={consumers_digest(())}", body)
    assert decode(WorkerReply, reply.content).consumers == ()


def test_who_leaves_is_not_held_and_is_not_there_afterwards() -> None:
    books, known = Dispatcher("me"), consumers_digest(())
    body = encode(WorkerReport(name="w", leaving=True))
    call(books, f"{WORKER_PATH}?known={known}", body)
    assert books.workers(time.monotonic()) == []
