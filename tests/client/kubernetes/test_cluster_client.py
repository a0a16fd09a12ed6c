"""The two clients of the cluster say the same, and every refusal is the error that it should be."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import errors
from penstock.client.kubernetes import resources
from penstock.client.kubernetes.async_cluster_client import AsyncClusterClient
from penstock.client.kubernetes.cluster_client import ClusterClient
from penstock.client.kubernetes.kubeconfig import ClusterAccess

ACCESS = ClusterAccess(server="http://api", namespace="team", context="here", token=lambda: "me")
Handler = Callable[[httpx.Request], httpx.Response]
Both = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest) -> Both:
    """Calls a method of one client, then of the other."""

    def call(name: str, *args: Any, handler: Handler, **given: Any) -> Any:
        if request.param == "sync":
            with ClusterClient(ACCESS, transport=httpx.MockTransport(handler)) as client:
                return getattr(client, name)(*args, **given)

        async def main() -> Any:
            transport = httpx.MockTransport(handler)
            async with AsyncClusterClient(ACCESS, transport=transport) as client:
                return await getattr(client, name)(*args, **given)

        return asyncio.run(main())

    return call


def test_paths_and_headers(both: Both) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"kind": "ElasticJob"})

    call = resources.create(resources.JOBS, {"kind": "ElasticJob"}, "team")
    assert both("send", call, handler=answer) == {"kind": "ElasticJob"}
    [request] = seen
    assert request.url.path == "/apis/penstock.dev/v1alpha1/namespaces/team/elasticjobs"
    assert request.url.params["fieldValidation"] == "Strict"
    assert request.headers["authorization"] == "Bearer me"
    assert json.loads(request.content) == {"kind": "ElasticJob"}


def test_all_pages_are_read(both: Both) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        page = int(request.url.params.get("continue", "0"))
        more = {"continue": str(page + 1)} if page < 2 else {}
        return httpx.Response(200, json={"items": [{"page": page}], "metadata": more})

    found = both("list", resources.PODS, "team", labels="a=b", handler=answer)
    assert [each["page"] for each in found] == [0, 1, 2]


def test_pages_that_lead_nowhere_are_an_error(both: Both) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"items": [], "metadata": {"continue": "again"}})

    with pytest.raises(errors.ClusterError, match="that page again"):
        both("list", resources.PODS, handler=answer)


REFUSALS = [
    (401, {"message": "Unauthorized"}, errors.ForbiddenError, "does not know these credentials"),
    (403, {"message": "pods is forbidden"}, errors.ForbiddenError, "pods is forbidden"),
    (404, {"message": "gone", "details": {"name": "x"}}, errors.ObjectNotFoundError, "gone"),
    (404, "404 page not found", errors.NotInstalledError, "no ElasticJobs of version"),
    (409, {"message": "exists"}, errors.ObjectConflictError, "exists"),
    (
        422,
        {
            "details": {
                "causes": [
                    {"field": "spec.strategy", "message": "Required value"},
                    {"field": "<nil>", "message": "some validation rules were not checked"},
                ]
            }
        },
        errors.InvalidObjectError,
        "^spec.strategy: Required value$",
    ),
    (
        400,
        {"message": 'cannot be handled: strict decoding error: unknown field "spec.x"'},
        errors.InvalidObjectError,
        '^unknown field "spec.x"$',
    ),
    (500, "broken", errors.ClusterRefusedError, "HTTP 500: broken"),
]


@pytest.mark.parametrize(("status", "body", "kind", "said"), REFUSALS)
def test_refusals(
    both: Both, status: int, body: Any, kind: type[errors.ClusterRefusedError], said: str
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        content = body if isinstance(body, str) else json.dumps(body)
        return httpx.Response(status, text=content)

    with pytest.raises(kind, match=said) as caught:
        both("send", resources.get(resources.JOBS, "x", "team"), handler=answer)
    assert type(caught.value) is kind
    assert caught.value.code == status


def test_a_server_that_is_away_is_named(both: Both) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    with pytest.raises(errors.ClusterUnreachableError) as caught:
        both("send", resources.get(resources.JOBS, "x", "team"), handler=answer)
    assert "http://api" in str(caught.value)
    assert "'here'" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, "<html>"), (200, "[]"), (200, "[" * 100_000), (200, ""), (204, ""), (302, "")],
)
def test_what_is_no_api_server_is_an_error(both: Both, status: int, body: str) -> None:
    """A login page that redirects must not look like a namespace without jobs."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text=body, headers={"Location": "http://login/"})

    with pytest.raises(errors.ClusterError, match="the address of a Kubernetes API server"):
        both("send", resources.get(resources.JOBS, "x", "team"), handler=answer)
    with pytest.raises(errors.ClusterError, match="the address of a Kubernetes API server"):
        both("list", resources.JOBS, "team", handler=answer)


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "a/b", "a%2Fb", "a\nb", "\udcff"])
def test_what_is_no_name_never_becomes_a_path(name: str) -> None:
    """An empty name would delete every job of the namespace."""
    for make in (resources.get, resources.delete):
        with pytest.raises(errors.InvalidObjectError, match=r"^name: .* is the name of nothing"):
            make(resources.JOBS, name, "team")
        with pytest.raises(errors.InvalidObjectError, match="namespace: "):
            make(resources.JOBS, "x", name)
    query = resources.get(resources.JOBS, "a?b#c", "team")
    assert query.path.endswith("/elasticjobs/a%3Fb%23c")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_is_busy_or_starts_may_be_asked_again(both: Both, status: int) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json={"kind": "Status", "message": "too many requests"})

    with pytest.raises(errors.ClusterUnreachableError, match="too many requests; try again"):
        both("send", resources.get(resources.JOBS, "x", "team"), handler=answer)


def test_an_answer_that_trickles_in_ends_in_time(both: Both) -> None:
    class Plain(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                time.sleep(0.02)
                yield b" "

    class Asynchronous(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.02)
                yield b" "

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Asynchronous() if in_loop() else Plain())

    def in_loop() -> bool:
        with suppress(RuntimeError):
            return asyncio.get_running_loop() is not None
        return False

    with pytest.raises(errors.ClusterUnreachableError, match=r"no whole answer in 0\.2 s"):
        both("send", resources.get(resources.JOBS, "x", "team"), seconds=0.2, handler=answer)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux tells of its timers there")
def test_a_stream_of_a_machine_that_is_gone_does_not_last_for_ever() -> None:
    served: list[asyncio.StreamWriter] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\none\n")
        await writer.drain()

    async def main() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        access = dataclasses.replace(ACCESS, server=f"http://127.0.0.1:{port}")
        async with server, AsyncClusterClient(access) as client:
            lines = client.lines(resources.get(resources.PODS, "x", "team"))
            async with aclosing(lines):
                assert await anext(lines) == "one"
                found = timer_of(served[0].get_extra_info("peername")[1])
            served[0].close()
            await served[0].wait_closed()
            return found

    def timer_of(port: int) -> str:
        [row] = [
            row.split()
            for row in Path("/proc/net/tcp").read_text().splitlines()[1:]
            if int(row.split()[1].partition(":")[2], 16) == port
        ]
        return row[5].partition(":")[0]

    assert asyncio.run(main()) == "02", "the kernel asks whether the other end is there"
