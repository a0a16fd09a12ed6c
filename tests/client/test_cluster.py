"""The two clients of the cluster say the same, and every refusal is the error that it should be."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock.client import errors, resources
from penstock.client.asynccluster import AsyncClusterClient
from penstock.client.cluster import ClusterClient
from penstock.client.kubeconfig import ClusterAccess

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
        {"details": {"causes": [{"field": "spec.strategy", "message": "Required value"}]}},
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


def test_an_answer_that_is_no_object_is_an_error(both: Both) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="<html>")

    with pytest.raises(errors.ClusterError, match="no JSON"):
        both("send", resources.get(resources.JOBS, "x", "team"), handler=answer)
