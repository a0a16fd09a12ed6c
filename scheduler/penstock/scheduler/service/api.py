"""The few calls that the planner makes to the Kubernetes API, with plain JSON in and out.

Connections, authentication and TLS are those of `kubernetes.aio`; its typed models are left out,
which cost more for each pod than all that the planner does with it. Two kinds of failure are told
apart: `RefusedError`, after which nothing was done; `UnavailableError`, after which nobody knows.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio.client import ApiClient

from penstock.crds.group import ELASTICJOB_PLURAL, GROUP, SCALE_PLURAL, VERSION
from penstock.scheduler.errors import SchedulerError

Json = dict[str, Any]

TIMEOUT_SECONDS: Final = 30.0
GONE: Final = 410
NOT_FOUND: Final = 404
_PAGE: Final = 500
_GROUPS: Final[Mapping[str, str]] = {
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "resourceslices": "/apis/resource.k8s.io/v1",
    "resourceclaims": "/apis/resource.k8s.io/v1",
    ELASTICJOB_PLURAL: f"/apis/{GROUP}/{VERSION}",
    SCALE_PLURAL: f"/apis/{GROUP}/{VERSION}",
}


class CallError(SchedulerError):
    """A call that did not succeed; `code` is the HTTP status, 0 where there was no answer."""

    def __init__(self, message: str, code: int, reason: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class RefusedError(CallError):
    """The API server answered, and did nothing."""


class UnavailableError(CallError):
    """No answer, or one that leaves open whether anything was done."""


class Api:
    """The API server, as the planner's account sees it."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, resource: str, namespace: str, name: str) -> Json:
        """One object."""
        return await self._json("GET", _path(resource, namespace, name))

    async def ping(self) -> None:
        """The cheapest call that shows that the server answers us."""
        await self._json("GET", _path("nodes", query={"limit": "1"}))

    async def list(self, resource: str) -> tuple[list[Json], str]:
        """All objects of a kind, read in pages, and the position at which to watch on."""
        items: list[Json] = []
        query = {"limit": str(_PAGE)}
        while True:
            page = await self._json("GET", _path(resource, query=query))
            items += page.get("items") or ()
            following = page["metadata"].get("continue")
            if not following:
                return items, page["metadata"]["resourceVersion"]
            query["continue"] = following

    async def create(self, resource: str, namespace: str, body: Mapping[str, Any]) -> None:
        """Create an object."""
        await self._bytes("POST", _path(resource, namespace), body, "application/json")

    async def patch(self, resource: str, namespace: str, name: str, body: Json) -> None:
        """Merge a patch into an object, lists by their keys; its `metadata.uid` is a condition."""
        kind = "application/strategic-merge-patch+json"
        await self._bytes("PATCH", _path(resource, namespace, name), body, kind)

    async def merge(self, resource: str, namespace: str, name: str, body: Json) -> None:
        """Merge a patch into an object; lists are replaced."""
        kind = "application/merge-patch+json"
        await self._bytes("PATCH", _path(resource, namespace, name), body, kind)

    async def delete_pod(
        self, namespace: str, name: str, uid: str, grace: int | None = None
    ) -> None:
        """Delete a pod, if it is still the one of that uid; `grace` seconds overrule its own."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self._bytes("DELETE", _path("pods", namespace, name), body, "application/json")

    @asynccontextmanager
    async def watch(
        self, resource: str, position: str, seconds: int
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """The events after a position, bookmarks included, until the server ends the watch."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": position,
            "timeoutSeconds": str(seconds),
        }
        path = _path(resource, query=query)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=seconds + 30)
        try:
            answer = await self._send("GET", path, None, "", limits)
            try:
                if answer.status != 200:
                    raise _failure(answer.status, await answer.read(), f"watch of {resource}")
                yield _lines(answer)
            finally:
                answer.close()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise UnavailableError(f"watch of {resource}: {_text(error)}", 0, "Broken") from error

    async def _json(self, method: str, path: str) -> Json:
        found: Json = json.loads(await self._bytes(method, path, None, ""))
        return found

    async def _bytes(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str
    ) -> bytes:
        limits = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            answer = await self._send(method, path, body, kind, limits)
            raw = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnavailableError(f"{method} {path}: {_text(error)}", 0, "NoAnswer") from error
        if not 200 <= answer.status < 300:
            raise _failure(answer.status, raw, f"{method} {path}")
        return raw

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        kind: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", **self._client.default_headers}
        if kind:
            headers["Content-Type"] = kind
        await self._client.update_params_for_auth(
            headers, None, ["BearerToken"], path, method, body
        )
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method,
            self._client.configuration.host + path,
            headers=headers,
            body=body,
            _request_timeout=limits,
        )
        response: aiohttp.ClientResponse = answer.response
        return response


def _path(
    resource: str, namespace: str = "", name: str = "", query: Mapping[str, str] | None = None
) -> str:
    parts = [_GROUPS[resource]]
    if namespace:
        parts += ["namespaces", quote(namespace)]
    parts += [part for part in (resource, quote(name)) if part]
    path = "/".join(parts)
    return f"{path}?{urlencode(query)}" if query else path


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    while line := await answer.content.readline():
        event: Json = json.loads(line)
        yield event


def _failure(status: int, raw: bytes, what: str) -> CallError:
    try:
        said = json.loads(raw)
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    message = said.get("message") or raw[:200].decode("utf-8", "replace") or f"status {status}"
    kind = UnavailableError if status >= 500 else RefusedError
    return kind(f"{what}: {message}", status, said.get("reason") or str(status))


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
