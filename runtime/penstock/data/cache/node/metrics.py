"""What a cache has counted, as Prometheus reads it: ``/metrics`` and ``/healthz`` of its daemon.

The text is written here: an image of a job has no client library of Prometheus, and needs none for
a handful of figures. Labels are the paths of the cache, which its command line bounds.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.base.http.server import HttpServer, make_server
from penstock.data.cache.report import Report, seen_ratio

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
KEEP_ALIVE_SECONDS: Final = 60

Send = Callable[[dict[str, Any]], Awaitable[None]]


class _Family(NamedTuple):
    """Figures of one name."""

    name: str
    kind: str
    meaning: str
    of: Callable[[Mapping[str, Any]], float | None]
    """None: it is not known, and left out."""


def _count(field: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda one: float(one[field])


def _known(field: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda one: None if one[field] is None else float(one[field])


FAMILIES: Final = (
    _Family("hits_total", "counter", "Files found in the cache of a node.", _count("hits")),
    _Family("misses_total", "counter", "Files read from storage.", _count("misses")),
    _Family("hit_bytes_total", "counter", "Bytes given from memory.", _count("hit_bytes")),
    _Family("miss_bytes_total", "counter", "Bytes read from storage.", _count("miss_bytes")),
    _Family(
        "remote_hits_total",
        "counter",
        "Hits on other nodes, among the hits.",
        _count("remote_hits"),
    ),
    _Family(
        "refused_answers_total",
        "counter",
        "Answers of other nodes that were not what they said.",
        _count("refused_answers"),
    ),
    _Family("bytes", "gauge", "Bytes of files that are held.", _count("held_bytes")),
    _Family(
        "quota_bytes",
        "gauge",
        "Bytes that a path has a right to, where several ask for the memory.",
        _known("quota_bytes"),
    ),
    _Family(
        "wanted_bytes",
        "gauge",
        "Bytes with which its jobs would wait least.",
        _known("wanted_bytes"),
    ),
    _Family("data_set_bytes", "gauge", "About the bytes of its files.", _known("data_set_bytes")),
    _Family(
        "waiting_ratio",
        "gauge",
        "Seconds that its jobs wait for files for each second of work, all together.",
        _known("waiting"),
    ),
    _Family(
        "spared_per_gib",
        "gauge",
        "What another GiB would take off that.",
        _known("spared_per_gib"),
    ),
    _Family(
        "seen_ratio", "gauge", "Share of the reads of files that came by the cache.", seen_ratio
    ),
)


def exposition(report: Report, capacity: int) -> str:
    """The figures in Prometheus' text form."""
    lines = [
        "# HELP penstock_cache_capacity_bytes Bytes that the cache may hold.",
        "# TYPE penstock_cache_capacity_bytes gauge",
        f"penstock_cache_capacity_bytes {capacity}",
    ]
    for family in FAMILIES:
        name = f"penstock_cache_{family.name}"
        lines += [f"# HELP {name} {family.meaning}", f"# TYPE {name} {family.kind}"]
        lines += [
            f'{name}{{path="{_escaped(path)}"}} {value:.17g}'
            for path, one in report.items()
            if (value := family.of(one)) is not None
        ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a path may hold bytes that are no text
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class MetricsServer:
    """Answers on a listening socket, in a thread of its own, until `end`."""

    def __init__(
        self, listener: socket.socket, text: Callable[[], str], is_healthy: Callable[[], bool]
    ) -> None:
        """``text``: the figures of now; called for each scrape.

        ``is_healthy``: whether the daemon still takes connections; called for each probe.
        """
        self._listener = listener
        self._text = text
        self._is_healthy = is_healthy
        self._server = _server(self._answer)
        self._thread = threading.Thread(
            target=self._run, name="penstock-cache-metrics", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Stop; who is being answered has a second more."""
        self._server.should_exit = True
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))

    async def _answer(self, scope: dict[str, Any], _: Any, send: Send) -> None:
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            await _respond(send, 405, b"GET /metrics or /healthz\n")
        elif path == "/metrics":
            await _respond(send, 200, self._text().encode())
        elif path == "/healthz" and self._is_healthy():
            await _respond(send, 200, b"ok\n")
        elif path == "/healthz":
            await _respond(send, 503, b"no more connections are taken\n")
        else:
            await _respond(send, 404, b"GET /metrics or /healthz\n")


def _server(app: Callable[..., Any]) -> HttpServer:
    return make_server(
        app,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        stop_seconds=1,
        log_level="warning",
        interface="asgi3",
    )


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", CONTENT_TYPE), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
