"""A running API server for tests, and a small synchronous client.

    with running_cluster() as cluster:
        cluster.apply(crd)
        cluster.get("pods", "name", "default")

The server runs on an event loop in a thread of its own, so that kubectl, kopf and synchronous
clients can be driven from the test's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock_cluster.apiserver import RunningServer, ServeOptions, serve
from penstock_cluster.registry import Engine, EngineOptions

Json = dict[str, Any]
T = TypeVar("T")
_START_SECONDS = 20.0
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    headers: dict[str, list[str]]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class RefusedError(AssertionError):
    """The server refused a request that a test expected to succeed."""

    def __init__(self, method: str, path: str, answer: Answer) -> None:
        super().__init__(f"{method} {path}: {answer.status} {answer.text[:2000]}")
        self.answer = answer


class RunningCluster:
    """A server in a thread; every call is synchronous."""

    def __init__(
        self, server: RunningServer, loop: asyncio.AbstractEventLoop, folder: Path
    ) -> None:
        self.server = server
        self.engine: Engine = server.engine
        self.url = server.url
        self.token = server.token
        self.folder = folder
        self.kubeconfig_path = server.write_kubeconfig(folder / "kubeconfig")
        self._loop = loop
        self._tls: ssl.SSLContext | None = None
        if server.ca_pem is not None:
            self._tls = ssl.create_default_context(cadata=server.ca_pem.decode())

    def run(self, work: Coroutine[Any, Any, T], timeout_seconds: float = 30) -> T:
        """Run a coroutine on the server's loop, e.g. of ``cluster.engine.api()``."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_seconds)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        token: str | None = None,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = 30,
    ) -> Answer:
        """One request; the answer whatever its status. ``body``: text, bytes or JSON data."""
        url = self.url + path
        if query:
            url += ("&" if "?" in path else "?") + urllib.parse.urlencode(query)
        data = None
        if body is not None:
            data = (
                body
                if isinstance(body, bytes)
                else (body.encode() if isinstance(body, str) else json.dumps(body).encode())
            )
        sent = {"Accept": "application/json", "User-Agent": "tests/1", **(headers or {})}
        if data is not None:
            sent["Content-Type"] = content_type
        bearer = self.token if token is None else token
        if bearer:
            sent["Authorization"] = f"Bearer {bearer}"
        request = urllib.request.Request(url, data=data, method=method, headers=sent)  # noqa: S310  its own server
        try:
            reply = urllib.request.urlopen(request, timeout=timeout_seconds, context=self._tls)  # noqa: S310
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            found: dict[str, list[str]] = {}
            for name, value in reply.headers.items():
                found.setdefault(name.lower(), []).append(value)
            return Answer(reply.status, found, reply.read().decode("utf-8", "replace"))

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """One request that must succeed; its JSON."""
        answer = self.request(method, path, body, **more)
        if answer.status >= 300:
            raise RefusedError(method, path, answer)
        return answer.json

    def path(
        self, resource: str, namespace: str = "", name: str = "", subresource: str = ""
    ) -> str:
        """The path of ``pods`` or ``elasticjobs.penstock.dev``."""
        found = self.engine.registry.named(resource)
        parts = ["/apis", found.group, found.version] if found.group else ["/api", found.version]
        if found.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (found.plural, name, subresource) if part]
        return "/".join(parts)

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        answer: Json = self.ok("GET", self.path(resource, namespace, name))
        return answer

    def find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        answer = self.request("GET", self.path(resource, namespace, name))
        return None if answer.status == 404 else answer.json

    def list(self, resource: str, namespace: str = "", **query: str) -> list[Json]:
        items: list[Json] = self.ok("GET", self.path(resource, namespace), query=query)["items"]
        return items

    def create(self, resource: str, document: Json, namespace: str = "") -> Json:
        place = namespace or (document.get("metadata") or {}).get("namespace", "")
        answer: Json = self.ok("POST", self.path(resource, place), document)
        return answer

    def patch(
        self, resource: str, name: str, body: Any, namespace: str = "", subresource: str = "",
        content_type: str = _MERGE,
    ) -> Json:  # fmt: skip
        path = self.path(resource, namespace, name, subresource)
        answer: Json = self.ok("PATCH", path, body, content_type=content_type)
        return answer

    def delete(self, resource: str, name: str, namespace: str = "", **query: str) -> Json:
        answer: Json = self.ok("DELETE", self.path(resource, namespace, name), query=query)
        return answer

    def apply(self, document: Json, namespace: str = "default") -> Json:
        """Server-side apply of any object; a CRD is waited for until it is served."""
        found = self.engine.registry.of_kind(document["apiVersion"], document["kind"])
        if found is None:
            raise LookupError(f"{document['apiVersion']} {document['kind']} is not served")
        metadata = document["metadata"]
        place = metadata.get("namespace", namespace) if found.namespaced else ""
        path = self.path(found.name.qualified, place, metadata["name"])
        query = {"fieldManager": "tests", "force": "true"}
        applied: Json = self.ok(
            "PATCH", path, document, content_type="application/apply-patch+yaml", query=query
        )
        if document["kind"] == "CustomResourceDefinition":
            name = metadata["name"]
            self.wait(lambda: self._is_served(name), f"CRD {name} to be established")
        return applied

    def _is_served(self, name: str) -> bool:
        plural, _, group = name.partition(".")
        return any(r.plural == plural and r.group == group for r in self.engine.registry)

    def namespace(self, name: str) -> str:
        """Create a namespace with its service account."""
        self.create("namespaces", {"metadata": {"name": name}})
        self.wait(
            lambda: self.find("serviceaccounts", "default", name) is not None,
            f"service account of {name}",
        )
        return name

    def account_token(self, namespace: str, name: str) -> str:
        path = self.path("serviceaccounts", namespace, name, "token")
        token: str = self.ok("POST", path, {"spec": {}})["status"]["token"]
        return token

    @staticmethod
    def wait(
        probe: Callable[[], Any], what: str, timeout_seconds: float = 10, pause: float = 0.01
    ) -> Any:
        """Wait until ``probe`` gives something true; its value."""
        end = time.monotonic() + timeout_seconds
        while True:
            found = probe()
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"timed out after {timeout_seconds} s: {what}")
            time.sleep(pause)


@contextlib.contextmanager
def running_cluster(
    options: EngineOptions | None = None, serving: ServeOptions | None = None
) -> Iterator[RunningCluster]:
    """A started server; stopped, with its thread, at the end of the block."""
    started: dict[str, Any] = {}
    ready, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        async with Engine(options) as engine, serve(engine, serving) as server:
            started["server"], started["loop"] = server, asyncio.get_running_loop()
            ready.set()
            await stop.wait()

    def target() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001  (handed to the test's thread)
            started["error"] = error
            ready.set()

    thread = threading.Thread(target=target, name="test-cluster", daemon=True)
    thread.start()
    if not ready.wait(_START_SECONDS):
        raise AssertionError("the API server did not start")
    if "error" in started:
        raise started["error"]
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        try:
            yield RunningCluster(started["server"], started["loop"], Path(folder))
        finally:
            started["loop"].call_soon_threadsafe(stop.set)
            thread.join(_START_SECONDS)
    if "error" in started:
        raise started["error"]
    assert not thread.is_alive(), "the API server did not stop"
