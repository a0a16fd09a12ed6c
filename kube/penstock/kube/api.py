"""Calls to the Kubernetes API with plain JSON in and out.

A thin layer over `kubernetes.aio`, whose typed models cost a millisecond of CPU for each object and
whose configuration, authentication and connection pool are what is wanted. Every call ends: with an
answer, with `ApiRefusedError` or with `ApiUnavailableError`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio.client import ApiClient

from penstock.crds.group import ELASTICJOB_PLURAL, GROUP, SCALE_PLURAL, VERSION
from penstock.kube.errors import ApiError, ApiRefusedError, ApiUnavailableError

Json = dict[str, Any]

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_DEVICES: Final = "/apis/resource.k8s.io/v1"
_TRAINER: Final = "/apis/trainer.kubeflow.org/v1alpha1"
_PREFIXES: Final[Mapping[str, str]] = {
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "services": "/api/v1",
    "serviceaccounts": "/api/v1",
    "events": "/api/v1",
    "roles": _RBAC,
    "rolebindings": _RBAC,
    "leases": "/apis/coordination.k8s.io/v1",
    "resourceslices": _DEVICES,
    "resourceclaims": _DEVICES,
    "podgroups.scheduling.x-k8s.io": "/apis/scheduling.x-k8s.io/v1alpha1",
    "podgroups.scheduling.volcano.sh": "/apis/scheduling.volcano.sh/v1beta1",
    "trainjobs": _TRAINER,
    "trainingruntimes": _TRAINER,
    "clustertrainingruntimes": _TRAINER,
    ELASTICJOB_PLURAL: f"/apis/{GROUP}/{VERSION}",
    SCALE_PLURAL: f"/apis/{GROUP}/{VERSION}",
}
"""Where each resource is; one whose name several groups have is called as its CRD is."""
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
REQUEST_TIMEOUT_SECONDS: Final = 30.0
_PAGE: Final = 500
_JSON: Final = "application/json"
_METADATA: Final = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
_METADATA_LIST: Final = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
_LOG_BYTES: Final = 64 * 1024
_NOT_EXECUTED: Final = frozenset({429})
"""Of the codes from 429 up, those that say that the request was not tried at all."""


Count = Callable[[str, str, str], None]
"""Told of every call but watches: verb, resource, and the status, or "none" without an answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole of a list, gathered from its pages."""

    items: list[Json]
    resource_version: str


@dataclass(frozen=True, slots=True)
class _Request:
    """One call; ``verb`` is the word of the API server for it, where that is not the method."""

    method: str
    resource: str
    namespace: str | None
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    content_type: str = _JSON
    accept: str = _JSON
    verb: str = ""

    @property
    def path(self) -> str:
        parts = [_PREFIXES[self.resource]]
        if self.namespace:
            parts.append(f"namespaces/{quote(self.namespace)}")
        parts.append(self.resource.partition(".")[0])
        parts.extend(quote(part) for part in (self.name, self.subresource) if part)
        path = "/".join(parts)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def counted(self) -> tuple[str, str]:
        """The verb and the resource under which it is counted."""
        below = f"/{self.subresource}" if self.subresource else ""
        return self.verb or self.method.lower(), self.resource + below


class Api:
    """The API server, as one user sees it.

    Args:
        client: how to reach it.
        count: told of every call; see `Count`.
    """

    def __init__(self, client: ApiClient, count: Count = lambda *_: None) -> None:
        self.client = client
        self._count = count

    async def get(
        self, resource: str, namespace: str | None, name: str, *, metadata_only: bool = False
    ) -> Json:
        """One object.

        Raises:
            ApiRefusedError: Code 404, there is none.
        """
        accept = _METADATA if metadata_only else _JSON
        return await self._call(_Request("GET", resource, namespace, name, accept=accept))

    async def ping(self, resource: str) -> None:
        """The cheapest request that shows that the API server answers us for a kind."""
        await self._call(_Request("GET", resource, None, query={"limit": "1"}, verb="list"))

    async def list(
        self,
        resource: str,
        namespace: str | None,
        selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> Page:
        """All objects of a kind in a namespace, or in all, read page by page."""
        accept = _METADATA_LIST if metadata_only else _JSON
        items: list[Json] = []
        token = ""
        while True:
            query = {"limit": str(_PAGE)}
            if selector:
                query["labelSelector"] = selector
            if token:
                query["continue"] = token
            page = await self._call(
                _Request("GET", resource, namespace, query=query, verb="list", accept=accept)
            )
            items.extend(page.get("items") or ())
            token = page["metadata"].get("continue") or ""
            if not token:
                return Page(items, page["metadata"]["resourceVersion"])

    async def create(self, resource: str, namespace: str, body: Mapping[str, Any]) -> Json:
        """Create an object.

        Raises:
            ApiRefusedError: Code 409, one of its name exists.
        """
        return await self._call(_Request("POST", resource, namespace, body=body))

    async def submit(self, resource: str, namespace: str | None, body: Mapping[str, Any]) -> None:
        """As `create`, for a caller who does not want the object back."""
        await self._request(_Request("POST", resource, namespace, body=body))

    async def check(self, resource: str, namespace: str, body: Mapping[str, Any]) -> None:
        """As `create`, but nothing is made: raises what `create` would."""
        await self._request(
            _Request("POST", resource, namespace, query={"dryRun": "All"}, body=body)
        )

    async def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> Json:
        """Merge a patch into an object or one of its subresources.

        A ``metadata.uid`` or ``metadata.resourceVersion`` in it is a condition. Lists are replaced;
        with ``strategic``, which only the kinds of Kubernetes know, merged by their keys.
        """
        kind = _STRATEGIC if strategic else _MERGE
        return await self._call(
            _Request("PATCH", resource, namespace, name, subresource, body=body, content_type=kind)
        )

    async def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        uid: str,
        *,
        grace_seconds: int | None = None,
    ) -> Json:
        """Delete an object, if it is still the one of that uid; its dependents follow.

        ``grace_seconds`` overrules a pod's own.
        """
        body: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self._call(_Request("DELETE", resource, namespace, name, body=body))

    async def log(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """The last lines of a container's log."""
        query = {
            "container": container,
            "tailLines": str(lines),
            "limitBytes": str(_LOG_BYTES),
        }
        raw = await self._request(_Request("GET", "pods", namespace, pod, "log", query))
        return raw.decode("utf-8", "replace")

    @asynccontextmanager
    async def watch(
        self,
        resource: str,
        namespace: str | None,
        *,
        resource_version: str,
        selector: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """The changes of a kind after a resourceVersion, bookmarks included, until the server ends.

        Raises:
            ApiRefusedError: the server refuses the watch, for instance as too old (410).
            ApiUnavailableError: the connection failed, or nothing came for longer than it should.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        if selector:
            query["labelSelector"] = selector
        request = _Request("GET", resource, namespace, query=query, content_type="")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=timeout_seconds + 30)
        try:
            answer = await self._send(request, timeout)
            try:
                if answer.status != 200:
                    raise _failure(answer, await answer.read())
                yield _lines(answer)
            finally:
                answer.close()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiUnavailableError(_text(error), code=0, reason="Disconnected") from error

    async def _call(self, request: _Request) -> Json:
        raw = await self._request(request)
        try:
            result: Json = json.loads(raw)
        except ValueError as error:
            verb, _ = request.counted
            text = f"{verb} {request.resource}: the answer is no JSON: {raw[:200]!r}"
            raise ApiUnavailableError(text, code=0, reason="Unreadable") from error
        return result

    async def _request(self, request: _Request) -> bytes:
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        code = "none"
        try:
            answer = await self._send(request, timeout)
            raw = await answer.read()
            code = str(answer.status)
        except (aiohttp.ClientError, TimeoutError) as error:
            text = f"{request.method} {request.path}: {_text(error)}"
            raise ApiUnavailableError(text, code=0, reason="Disconnected") from error
        finally:
            self._count(*request.counted, code)
        if not 200 <= answer.status < 300:
            raise _failure(answer, raw)
        return raw

    async def _send(
        self, request: _Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        method, path, body = request.method, request.path, request.body
        headers = {"Accept": request.accept, **self.client.default_headers}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        await self.client.update_params_for_auth(headers, None, ["BearerToken"], path, method, body)
        # The library is untyped here.
        answer = await self.client.rest_client.request(  # type: ignore[no-untyped-call]
            method,
            self.client.configuration.host + path,
            headers=headers,
            body=body,
            _request_timeout=timeout,
        )
        response: aiohttp.ClientResponse = answer.response
        return response


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    while line := await answer.content.readline():
        event: Json = json.loads(line)
        yield event


def _failure(answer: aiohttp.ClientResponse, raw: bytes) -> ApiError:
    try:
        status = json.loads(raw)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    message = status.get("message") or raw[:200].decode("utf-8", "replace") or str(answer.reason)
    reason = status.get("reason") or str(answer.reason or answer.status)
    if answer.status >= 429 and answer.status not in _NOT_EXECUTED:
        return ApiUnavailableError(message, code=answer.status, reason=reason)
    retry_after = answer.headers.get("Retry-After", "")
    return ApiRefusedError(
        message,
        code=answer.status,
        reason=reason,
        retry_after=float(retry_after) if retry_after.isdecimal() else None,
    )


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
