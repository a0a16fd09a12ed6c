"""The Kubernetes API for asyncio: the same calls as `penstock.client.kubernetes.cluster_client`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final, Self

import httpx

from penstock.client.kubernetes import resources
from penstock.client.kubernetes.cluster_client import (
    TIMEOUT_SECONDS,
    WHOLE_SECONDS,
    extensions,
    headers,
    unreachable,
)
from penstock.client.kubernetes.kubeconfig import ClusterAccess, Json
from penstock.client.kubernetes.resources import ClusterCall, Resource

_KEPT_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
"""A log that is followed may be silent for hours; a machine that is gone is noticed in a minute."""


class AsyncClusterClient:
    """One cluster. Close it, or use it in an ``async with`` statement."""

    def __init__(
        self, access: ClusterAccess, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.access = access
        self._http = httpx.AsyncClient(
            base_url=access.server,
            headers=dict(access.headers),
            timeout=TIMEOUT_SECONDS,
            transport=transport
            or httpx.AsyncHTTPTransport(
                verify=access.verify,
                proxy=access.proxy,
                socket_options=_KEPT_ALIVE,
                trust_env=False,
            ),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: ClusterCall, *, seconds: float = WHOLE_SECONDS) -> Json:
        """Carry out one call within this time.

        Raises:
            ClusterError: A call to the Kubernetes API did not succeed.
        """
        # A credential plugin may take its time, and a file may lie on a slow disk.
        sent = await asyncio.to_thread(headers, self.access, call)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._http.request(
                    call.method,
                    call.path,
                    params=dict(call.query),
                    content=call.content,
                    headers=sent,
                    extensions=extensions(self.access),
                    timeout=min(TIMEOUT_SECONDS, seconds),
                )
        except TimeoutError as error:
            late = httpx.ReadTimeout(f"no whole answer in {seconds:g} s")
            raise unreachable(self.access, late) from error
        except httpx.HTTPError as error:
            raise unreachable(self.access, error) from error
        return call.result(answer.status_code, answer.content)

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = ""
    ) -> list[Json]:
        """All objects of a namespace, or (None) of all namespaces."""
        found: list[Json] = []
        call: ClusterCall | None = resources.listed(resource, namespace, labels=labels)
        while call is not None:
            page = await self.send(call)
            found += page.get("items") or []
            call = resources.following(call, page)
        return found

    async def lines(
        self, call: ClusterCall, *, idle_seconds: float | None = None
    ) -> AsyncGenerator[str]:
        """The lines of an answer as they come; `idle_seconds`: most time without one.

        Whoever leaves before the end closes it (``contextlib.aclosing``).
        """
        sent = await asyncio.to_thread(headers, self.access, call)
        try:
            async with self._http.stream(
                call.method,
                call.path,
                params=dict(call.query),
                headers=sent,
                extensions=extensions(self.access),
                timeout=httpx.Timeout(TIMEOUT_SECONDS, read=idle_seconds),
            ) as answer:
                if not answer.is_success:
                    content = await answer.aread()
                    raise resources.refused(call, answer.status_code, content)
                async for line in answer.aiter_lines():
                    yield line
        except httpx.HTTPError as error:
            raise unreachable(self.access, error) from error
