"""The Kubernetes API for programs without an event loop: a few calls, and nothing else.

Not a general client. A training image has this package and must not carry a client library, and
the command line must start at once (docs/adr/0004-no-kubernetes-library-in-the-client.md).
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final, Self

import httpx

from penstock.client.errors import ClusterUnreachableError
from penstock.client.kubernetes import resources
from penstock.client.kubernetes.kubeconfig import ClusterAccess, Json
from penstock.client.kubernetes.resources import ClusterCall, Resource

TIMEOUT_SECONDS: Final = 15.0
"""Most time without a sign of the server."""
WHOLE_SECONDS: Final = 60.0
"""Most time for one whole answer, however steadily it trickles in."""


class ClusterClient:
    """One cluster, as one kubeconfig context reaches it. Close it, or use it in a ``with``."""

    def __init__(
        self, access: ClusterAccess, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.access = access
        self._http = httpx.Client(
            base_url=access.server,
            headers=dict(access.headers),
            verify=access.verify,
            proxy=access.proxy,
            timeout=TIMEOUT_SECONDS,
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: ClusterCall, *, seconds: float = WHOLE_SECONDS) -> Json:
        """Carry out one call within this time.

        Raises:
            ClusterError: A call to the Kubernetes API did not succeed.
        """
        end = time.monotonic() + seconds
        body = bytearray()
        try:
            with self._http.stream(
                call.method,
                call.path,
                params=dict(call.query),
                content=call.content,
                headers=headers(self.access, call),
                extensions=extensions(self.access),
                timeout=min(TIMEOUT_SECONDS, seconds),
            ) as answer:
                for chunk in answer.iter_bytes():
                    body += chunk
                    if time.monotonic() > end:
                        raise httpx.ReadTimeout(f"no whole answer in {seconds:g} s")
        except httpx.HTTPError as error:
            raise unreachable(self.access, error) from error
        return call.result(answer.status_code, bytes(body))

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
    ) -> list[Json]:
        """All objects of a namespace, or (None) of all namespaces."""
        found: list[Json] = []
        call: ClusterCall | None = resources.listed(
            resource, namespace, labels=labels, fields=fields
        )
        while call is not None:
            page = self.send(call)
            found += page.get("items") or []
            call = resources.following(call, page)
        return found


def headers(access: ClusterAccess, call: ClusterCall) -> dict[str, str]:
    """The headers of a request."""
    found = {"Accept": "application/json, */*;q=0.5"}
    if call.body is not None:
        found["Content-Type"] = call.content_type
    if token := access.token():
        found["Authorization"] = f"Bearer {token}"
    return found


def extensions(access: ClusterAccess) -> dict[str, Any]:
    """How to talk TLS where the address is not the server's name."""
    return {"sni_hostname": access.server_name} if access.server_name else {}


def unreachable(access: ClusterAccess, error: httpx.HTTPError) -> ClusterUnreachableError:
    """The error for a server that gave no whole answer."""
    said = str(error) or type(error).__name__
    context = f" (context {access.context!r} of {access.source})" if access.context else ""
    return ClusterUnreachableError(
        f"the API server {access.server} does not answer: {said}; "
        f"is the cluster up, and is this the one you mean?{context}"
    )
