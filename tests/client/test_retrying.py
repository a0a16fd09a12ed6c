"""Calls are tried again when that may help, and only as long as allowed."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.targets import RoleTarget
from penstock.client import (
    AsyncBrainClient,
    BrainUnavailableError,
    ConflictError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    ProtocolError,
    RetryPolicy,
    TokenFile,
)
from penstock.client.errors import BrainRefusedError
from penstock.wire import Override
from tests.client.servers import QUICK, Called, Either

JOB = {
    "uid": "uid-1",
    "name": "job",
    "namespace": "default",
    "strategy": "AllReduce",
    "roles": {"worker": {}},
    "phase": "Active",
    "registered_seconds": 1,
    "last_seen_seconds": 2,
}


def problem(status: int, kind: str = "urn:penstock:problem:job-not-found") -> httpx.Response:
    body = {"type": kind, "title": "No", "status": status, "detail": "because", "errors": []}
    return httpx.Response(status, json=body)


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("closed"),
        httpx.Response(503),
        httpx.Response(502, text="<html>"),
        httpx.Response(429),
    ],
)
def test_what_may_pass_is_tried_again(either: Either, failure: httpx.Response | Exception) -> None:
    server = Called(failure, failure, httpx.Response(200, json=JOB))
    job = either.call("job", "uid-1", handler=server)
    assert job.uid == "uid-1"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFoundError),
        (401, NotAllowedError),
        (403, NotAllowedError),
        (409, ConflictError),
        (412, PreconditionFailedError),
        (422, BrainRefusedError),
        (500, BrainRefusedError),
    ],
)
def test_a_refusal_is_final_and_says_why(
    either: Either, status: int, kind: type[BrainRefusedError]
) -> None:
    server = Called(problem(status))
    with pytest.raises(kind, match="because") as caught:
        either.call("job", "uid-1", handler=server)
    assert caught.value.problem.status == status
    assert len(server.requests) == 1


def test_it_gives_up_in_time_with_a_clear_error(either: Either) -> None:
    server = Called(httpx.ConnectError("connection refused"))
    began = time.monotonic()
    with pytest.raises(BrainUnavailableError, match="connection refused") as caught:
        either.call("job", "uid-1", handler=server)
    assert time.monotonic() - began < QUICK.total_seconds + 0.5
    assert caught.value.attempts == len(server.requests) > 5
    assert "GET /v1/jobs/uid-1" in str(caught.value)


def test_a_server_that_says_when_to_come_back_is_heard(either: Either) -> None:
    server = Called(
        httpx.Response(503, headers={"Retry-After": "1"}), httpx.Response(200, json=JOB)
    )
    began = time.monotonic()
    either.call("job", "uid-1", handler=server)
    assert 1.0 <= time.monotonic() - began < 1.6


def test_an_override_is_sent_again_under_the_same_key(either: Either) -> None:
    plan = {
        "id": 3,
        "job_uid": "uid-1",
        "created_seconds": 1,
        "source": "User",
        "reason": "Override",
        "message": "",
    }
    server = Called(
        httpx.ReadTimeout("no answer"),
        httpx.Response(201, json=plan, headers={"ETag": '"7"'}),
    )
    body = Override(roles={"worker": RoleTarget(replicas=2)})
    made = either.call("override", "uid-1", body, handler=server, keywords={"etag": '"6"'})
    assert (made.value.id, made.etag) == (3, '"7"')
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(keys) == 1
    assert {request.headers["if-match"] for request in server.requests} == {'"6"'}


def test_an_answer_of_a_newer_brain_is_understood(either: Either) -> None:
    server = Called(httpx.Response(200, json={**JOB, "mood": "good", "signature": {"new": 1}}))
    assert either.call("job", "uid-1", handler=server).name == "job"


def test_nonsense_is_a_protocol_error(either: Either) -> None:
    for answer in (
        httpx.Response(200, text="<html>welcome</html>"),
        httpx.Response(200, json={"uid": 3}),
        httpx.Response(200, content=b" " * (17 * 1024**2)),
    ):
        with pytest.raises(ProtocolError):
            either.call("job", "uid-1", handler=Called(answer))


def test_an_error_that_is_no_problem_is_still_reported(either: Either) -> None:
    with pytest.raises(BrainRefusedError, match="HTTP 400: nginx"):
        either.call("job", "uid-1", handler=Called(httpx.Response(400, text="nginx")))


def test_the_token_is_read_for_every_call(either: Either) -> None:
    tokens = iter(["one", "two"])
    server = Called(httpx.Response(503), httpx.Response(200, json=JOB))
    either.call("job", "uid-1", handler=server, token=lambda: next(tokens))
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer one",
        "Bearer two",
    ]


@pytest.mark.parametrize("call", ["job", "watch_plans"])
def test_a_token_file_that_is_not_there_is_named(either: Either, tmp_path: Path, call: str) -> None:
    token = TokenFile(tmp_path / "token")
    server = Called(httpx.Response(200, json=JOB))
    with pytest.raises(BrainUnavailableError, match=f"FileNotFoundError: .*{token.path}"):
        either.call(call, "uid-1", handler=server, token=token)
    assert server.requests == []


def test_a_token_file_that_comes_late_is_read(either: Either, tmp_path: Path) -> None:
    token = TokenFile(tmp_path / "token")
    asked = 0

    def late() -> str:
        nonlocal asked
        asked += 1
        if asked == 3:
            token.path.write_text("here\n")
        return token()

    server = Called(httpx.Response(200, json=JOB))
    assert either.call("job", "uid-1", handler=server, token=late).uid == "uid-1"
    assert server.requests[0].headers["authorization"] == "Bearer here"


@pytest.mark.parametrize("call", ["job", "watch_plans"])
def test_a_token_that_is_slow_to_come_does_not_hold_up_the_event_loop(call: str) -> None:
    elsewhere = threading.Event()

    def slow() -> str:
        assert elsewhere.wait(20), "nothing else could run"
        return "here"

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, elsewhere.set)
        body = json.dumps(JOB).encode() if call == "job" else b""
        answer = httpx.Response(200, stream=httpx.ByteStream(body))
        transport = httpx.MockTransport(lambda request: answer)
        patient = RetryPolicy(total_seconds=30.0, attempt_seconds=30.0)
        async with AsyncBrainClient(
            "http://brain", token=slow, transport=transport, retry=patient
        ) as client:
            if call == "job":
                assert (await client.job("uid-1")).uid == "uid-1"
            else:
                assert [plan async for plan in client.watch_plans("uid-1")] == []

    asyncio.run(main())


def test_a_stream_of_anything_but_plans_is_a_protocol_error(either: Either) -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(b'event: plan\ndata: {"a": 1}\n\n'))

    with pytest.raises(ProtocolError, match="GET /v1/jobs/uid-1/plans/watch: the stream"):
        either.call("watch_plans", "uid-1", handler=serve)


def test_pages_are_followed_to_the_end(either: Either) -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        following = request.url.params.get("continue")
        number = int(following or 0)
        body = {
            "items": [{**JOB, "uid": f"uid-{number}"}],
            "continue": str(number + 1) if number < 4 else None,
        }
        return httpx.Response(200, json=body)

    jobs = either.call("jobs", handler=serve)
    assert [job.uid for job in jobs] == [f"uid-{number}" for number in range(5)]


def test_a_page_that_follows_itself_is_a_protocol_error(either: Either) -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"items": [JOB], "continue": "x"})

    with pytest.raises(ProtocolError, match="that page again"):
        either.call("jobs", handler=serve)


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_pauses_grow_are_bounded_and_never_zero(attempt: int, seed: int) -> None:
    policy = RetryPolicy(first_seconds=0.2, most_seconds=5.0)
    pause = policy.pause_seconds(attempt, random.Random(seed))
    ceiling = min(5.0, 0.2 * 2 ** (attempt - 1))
    assert ceiling / 10 <= pause <= ceiling


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_policy_that_cannot_be_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="total_seconds"):
        RetryPolicy(total_seconds=value)
