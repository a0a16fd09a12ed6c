"""Who asks whether a replica lives, is ready, and what it counts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from penstock.kube import probes
from penstock.kube.api import Api
from penstock.kube.errors import ApiError, ApiUnavailableError, PortInUseError
from penstock.kube.probes import ProbeServer


class Pinged:
    """An API server that answers, fails, or says nothing."""

    def __init__(self, error: ApiError | None = None, *, silent: bool = False) -> None:
        self.error = error
        self.silent = silent

    async def ping(self, resource: str) -> None:
        assert resource == "nodes"
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


def ask(api: Pinged, path: str, registry: CollectorRegistry | None = None, **more: Any) -> Any:
    async def main() -> httpx.Response:
        server = ProbeServer(
            "127.0.0.1", 0, registry or CollectorRegistry(), cast("Api", api), "nodes", **more
        )
        async with server, httpx.AsyncClient(base_url=server.url) as client:
            return await client.get(path)

    return asyncio.run(main())


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_replica_that_the_api_server_answers_is_ready(path: str) -> None:
    answer = ask(Pinged(), path)
    assert (answer.status_code, answer.text) == (200, "ok\n")


UNAVAILABLE = ApiUnavailableError("etcd is away", code=503, reason="ServiceUnavailable")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Pinged(UNAVAILABLE), "the API server does not answer us: etcd is away\n"),
        (lambda: Pinged(silent=True), "the API server has not answered within 0 s\n"),
    ],
    ids=["fails", "is silent"],
)
def test_it_lives_but_is_not_ready_while_the_api_server(
    make: Callable[[], Pinged], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_READY_SECONDS", 0.05)
    answer = ask(make(), "/readyz")
    assert (answer.status_code, answer.text) == (503, text)
    assert ask(make(), "/healthz").status_code == 200


def test_metrics_are_brought_up_to_date_first() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("depth", "Depth.", registry=registry)
    answer = ask(Pinged(), "/metrics", registry, refresh=lambda: gauge.set(7))
    assert "depth 7.0" in answer.text


def test_a_port_in_use_is_named() -> None:
    async def main(port: int) -> None:
        async with ProbeServer(
            "127.0.0.1", port, CollectorRegistry(), cast("Api", Pinged()), "nodes"
        ):
            pass

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"cannot listen on 127.0.0.1:{port}: .*--metrics"):
            asyncio.run(main(port))
