"""What calls send, how answers are read, and which failures mean that nothing was done."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from penstock.kube.api import Api
from penstock.kube.errors import ApiError, ApiRefusedError, ApiUnavailableError

Json = dict[str, Any]


class Server:
    """Gives the answers it was given, in turn, and keeps what it was asked."""

    def __init__(self, *answers: web.StreamResponse) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.accepted: list[str] = []
        self.counted: list[tuple[str, str, str]] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path, dict(request.query), body))
        self.accepted.append(request.headers["Accept"])
        return self.answers.pop(0)

    def call(self, story: Callable[[Api], Awaitable[Any]]) -> Any:
        """What a story told to this server returns."""

        async def main() -> Any:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                return await told(host, story, self.counted)
            finally:
                await runner.cleanup()

        return asyncio.run(main())


async def told(host: str, story: Callable[[Api], Awaitable[Any]], counted: list[Any]) -> Any:
    client = ApiClient(Configuration(host=host))
    try:
        return await story(Api(client, lambda *what: counted.append(what)))
    finally:
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here


def status(code: int, reason: str = "Because", **headers: str) -> web.Response:
    document = {"kind": "Status", "code": code, "reason": reason, "message": f"told {code}"}
    return web.json_response(document, status=code, headers=headers)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 429])
def test_a_definite_answer_is_a_refusal(code: int) -> None:
    server = Server(status(code))
    with pytest.raises(ApiRefusedError, match=f"^told {code}$") as refused:
        server.call(lambda api: api.create("pods", "ns", {}))
    assert (refused.value.code, refused.value.reason) == (code, "Because")
    assert refused.value.retry_after is None
    assert server.counted == [("post", "pods", str(code))]


@pytest.mark.parametrize("code", [431, 500, 502, 503, 504])
def test_after_any_other_answer_nobody_knows(code: int) -> None:
    with pytest.raises(ApiUnavailableError) as unavailable:
        Server(status(code)).call(lambda api: api.create("pods", "ns", {}))
    assert unavailable.value.code == code


def test_a_server_that_names_a_time_to_wait_is_quoted() -> None:
    answer = status(429, "TooManyRequests", **{"Retry-After": "7"})
    with pytest.raises(ApiRefusedError) as refused:
        Server(answer).call(lambda api: api.create("pods", "ns", {}))
    assert refused.value.retry_after == 7.0


@pytest.mark.parametrize("body", ["<html>no</html>", "[]", ""])
def test_an_error_of_a_proxy_is_told_as_it_is(body: str) -> None:
    with pytest.raises(ApiUnavailableError, match=re.escape(body or "Bad Gateway")):
        Server(web.Response(status=502, text=body)).call(lambda api: api.get("pods", "ns", "a"))


def test_an_answer_that_is_no_json_is_none() -> None:
    server = Server(web.Response(text="<html>log in</html>"))
    with pytest.raises(ApiUnavailableError, match="get pods: the answer is no JSON") as error:
        server.call(lambda api: api.get("pods", "ns", "a"))
    assert error.value.reason == "Unreadable"


def test_a_server_that_is_away_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    counted: list[Any] = []
    with pytest.raises(ApiUnavailableError, match=r"GET /api/v1/namespaces/ns/pods/a: ") as error:
        asyncio.run(
            told(f"http://127.0.0.1:{port}", lambda api: api.get("pods", "ns", "a"), counted)
        )
    assert (error.value.code, error.value.reason) == (0, "Disconnected")
    assert counted == [("get", "pods", "none")]


def test_a_list_is_read_page_by_page() -> None:
    pages: list[Json] = [
        {"items": [{"n": 1}], "metadata": {"resourceVersion": "5", "continue": "more"}},
        {"items": None, "metadata": {"resourceVersion": "5"}},
    ]
    server = Server(*(web.json_response(one) for one in pages))
    page = server.call(lambda api: api.list("nodes", None, "a=b", metadata_only=True))
    assert (page.items, page.resource_version) == ([{"n": 1}], "5")
    queries = [query for _, _, query, _ in server.asked]
    assert queries[0] == {"limit": "500", "labelSelector": "a=b"}
    assert queries[1] == {**queries[0], "continue": "more"}
    assert all("PartialObjectMetadataList" in one for one in server.accepted)
    assert server.counted == [("list", "nodes", "200")] * 2


def test_a_deletion_is_of_one_uid_and_leaves_the_grace_to_the_pod() -> None:
    server = Server(web.json_response({}), web.json_response({}))

    async def story(api: Api) -> None:
        await api.delete("pods", "ns", "a", "uid-1")
        await api.delete("pods", "ns", "a", "uid-1", grace_seconds=0)

    server.call(story)
    first, second = (body for _, _, _, body in server.asked)
    assert first["preconditions"] == {"uid": "uid-1"}
    assert first["propagationPolicy"] == "Background"
    assert "gracePeriodSeconds" not in first
    assert second == {**first, "gracePeriodSeconds": 0}


def test_a_check_makes_nothing() -> None:
    server = Server(web.json_response({}))
    server.call(lambda api: api.check("pods", "ns", {"a": 1}))
    [asked] = server.asked
    assert asked == ("POST", "/api/v1/namespaces/ns/pods", {"dryRun": "All"}, {"a": 1})


def test_a_subresource_is_counted_as_what_it_is() -> None:
    server = Server(web.json_response({}))
    server.call(lambda api: api.patch("elasticjobs", "ns", "a", {}, subresource="status"))
    assert server.counted == [("patch", "elasticjobs/status", "200")]
    assert server.asked[0][1].endswith("/namespaces/ns/elasticjobs/a/status")


async def _events(api: Api) -> list[Json]:
    async with api.watch("pods", None, resource_version="5", selector="a") as events:
        return [event async for event in events]


def test_a_watch_yields_events_until_the_server_ends_it() -> None:
    lines = [{"type": "ADDED", "object": {"n": number}} for number in range(3)]
    server = Server(web.Response(text="".join(json.dumps(one) + "\n" for one in lines)))
    assert server.call(_events) == lines
    assert server.asked[0][2] == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
        "labelSelector": "a",
    }
    assert server.counted == [], "how long it lasts says nothing of the server"


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (status(410, "Expired"), ApiRefusedError, 410),
        (status(503), ApiUnavailableError, 503),
        (web.Response(text='{"type": "ADD'), ApiUnavailableError, 0),
    ],
    ids=["410", "503", "half a line"],
)
def test_a_watch_that_fails_says_how(answer: web.Response, kind: type[ApiError], code: int) -> None:
    with pytest.raises(kind) as error:
        Server(answer).call(_events)
    assert error.value.code == code
