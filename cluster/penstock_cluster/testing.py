"""Clusters beside a test, in a thread of their own, and a small synchronous client for them.

    with embedded_cluster() as cluster:              # pods run
        cluster.apply(manifest)
        cluster.get("pods", "name", "default")

    with api_server() as cluster:                    # pods stay as they are written
        kubectl("--kubeconfig", cluster.kubeconfig_path, "get", "pods")

Under pytest both are fixtures as well (:mod:`penstock_cluster.pytest_plugin`). The event loop is
the thread's, so that kubectl, kopf and synchronous clients can be driven from the test's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock_cluster.apiserver import RunningServer, ServeOptions, serve
from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster
from penstock_cluster.faults.catalogue import Faults
from penstock_cluster.registry import Engine, EngineOptions

Json = dict[str, Any]
T = TypeVar("T")

_START_SECONDS: Final = 20.0
_MERGE: Final = "application/merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    headers: dict[str, list[str]]
    """By name in lower case."""
    text: str

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)


class RefusedError(AssertionError):
    """The server refused a request that a test expected to succeed."""

    def __init__(self, method: str, path: str, answer: Answer) -> None:
        super().__init__(f"{method} {path}: {answer.status} {answer.text[:2000]}")
        self.answer = answer


class RunningCluster:
    """A server in a thread; every call is synchronous.

    Resources are named by plural and group: ``pods``, ``deployments.apps``.
    """

    def __init__(
        self,
        server: RunningServer,
        loop: asyncio.AbstractEventLoop,
        folder: Path,
        whole: EmbeddedCluster | None = None,
    ) -> None:
        """``whole``: the cluster of which the server is a part, if any is."""
        self.server = server
        self.engine: Engine = server.engine
        self.url = server.url
        self.token = server.token
        self.folder = folder
        self.kubeconfig_path = server.write_kubeconfig(folder / "kubeconfig")
        self._whole = whole
        self._loop = loop
        self._tls: ssl.SSLContext | None = None
        if server.ca_pem is not None:
            self._tls = ssl.create_default_context(cadata=server.ca_pem.decode())

    @property
    def faults(self) -> Faults:
        """Faults on demand, e.g. ``cluster.run(cluster.faults.kill_container(name="p"))``.

        Raises:
            LookupError: this is an API server alone.
        """
        if self._whole is None:
            raise LookupError("an API server alone has no faults: use embedded_cluster()")
        return self._whole.faults

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
        """One request; the answer whatever its status.

        Args:
            method: ``GET`` and the like.
            path: below the server's address.
            body: text, bytes, or data to send as JSON.
            content_type: that of the body.
            token: None is the administrator's, and "" none.
            query: further arguments of the path.
            headers: further headers.
            timeout_seconds: of connecting, and of each wait for the server.
        """
        sent = {"Accept": "application/json", "User-Agent": "tests/1", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = content_type
            body = body if isinstance(body, bytes | str) else json.dumps(body)
            body = body.encode() if isinstance(body, str) else body
        bearer = self.token if token is None else token
        if bearer:
            sent["Authorization"] = f"Bearer {bearer}"
        if query:
            path += ("&" if "?" in path else "?") + urllib.parse.urlencode(query)
        connection = self._connect(timeout_seconds)
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            found: dict[str, list[str]] = {}
            for name, value in reply.getheaders():
                found.setdefault(name.lower(), []).append(value)
            return Answer(reply.status, found, reply.read().decode("utf-8", "replace"))

    def _connect(self, timeout_seconds: float) -> http.client.HTTPConnection:
        """A connection for one request, past every proxy that the environment names."""
        address = urllib.parse.urlsplit(self.url)
        host, port = str(address.hostname), address.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        return http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=self._tls)

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """One request that must succeed; its JSON."""
        answer = self.request(method, path, body, **more)
        if answer.status >= 300:
            raise RefusedError(method, path, answer)
        return answer.json

    def path(
        self, resource: str, namespace: str = "", name: str = "", subresource: str = ""
    ) -> str:
        """The path of a resource."""
        found = self.engine.registry.named(resource)
        parts = ["/apis", found.group, found.version] if found.group else ["/api", found.version]
        if found.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (found.plural, name, subresource) if part]
        return "/".join(parts)

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """An object that must be there."""
        found: Json = self.ok("GET", self.path(resource, namespace, name))
        return found

    def find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        """An object, or None."""
        answer = self.request("GET", self.path(resource, namespace, name))
        return None if answer.status == 404 else answer.json

    def list(self, resource: str, namespace: str = "", **query: str) -> list[Json]:
        """The objects of a resource, in all namespaces or one; ``labelSelector=`` and the like."""
        items: list[Json] = self.ok("GET", self.path(resource, namespace), query=query)["items"]
        return items

    def create(self, resource: str, document: Json, namespace: str = "") -> Json:
        """Create an object, by default in the namespace that it names; what is stored."""
        place = namespace or (document.get("metadata") or {}).get("namespace", "")
        stored: Json = self.ok("POST", self.path(resource, place), document)
        return stored

    def patch(
        self,
        resource: str,
        name: str,
        body: Any,
        namespace: str = "",
        subresource: str = "",
        content_type: str = _MERGE,
    ) -> Json:
        """Patch an object; what is stored."""
        path = self.path(resource, namespace, name, subresource)
        stored: Json = self.ok("PATCH", path, body, content_type=content_type)
        return stored

    def delete(self, resource: str, name: str, namespace: str = "", **query: str) -> Json:
        """Delete an object; the server's answer."""
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
        """Create a namespace with its service account; its name."""
        self.create("namespaces", {"metadata": {"name": name}})
        self.wait(
            lambda: self.find("serviceaccounts", "default", name) is not None,
            f"service account of {name}",
        )
        return name

    def account_token(self, namespace: str, name: str) -> str:
        """A bearer token of a service account."""
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
def embedded_cluster(options: ClusterOptions | None = None) -> Iterator[RunningCluster]:
    """A whole cluster, whose pods run; stopped, with them, at the end of the block."""

    @contextlib.asynccontextmanager
    async def parts() -> AsyncIterator[_Parts]:
        async with EmbeddedCluster(options) as cluster:
            yield cluster.server, cluster

    with _in_a_thread(parts) as running:
        yield running


@contextlib.contextmanager
def api_server(
    options: EngineOptions | None = None, serving: ServeOptions | None = None
) -> Iterator[RunningCluster]:
    """An API server with its controllers, and neither scheduler nor kubelet: pods stay Pending."""

    @contextlib.asynccontextmanager
    async def parts() -> AsyncIterator[_Parts]:
        async with Engine(options) as engine, serve(engine, serving) as server:
            yield server, None

    with _in_a_thread(parts) as running:
        yield running


_Parts = tuple[RunningServer, EmbeddedCluster | None]


@contextlib.contextmanager
def _in_a_thread(
    parts: Callable[[], AbstractAsyncContextManager[_Parts]],
) -> Iterator[RunningCluster]:
    """Runs them on a loop of their own; what fails there is raised here."""
    started: dict[str, Any] = {}
    ready, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        async with parts() as (server, whole):
            started.update(server=server, whole=whole, loop=asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    def target() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001  handed to the test's thread
            started["error"] = error
            ready.set()

    thread = threading.Thread(target=target, name="penstock-cluster", daemon=True)
    thread.start()
    if not ready.wait(_START_SECONDS):
        raise AssertionError("the API server did not start")
    if "error" in started:
        raise started["error"]
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        running = RunningCluster(started["server"], started["loop"], Path(folder), started["whole"])
        try:
            yield running
        finally:
            started["loop"].call_soon_threadsafe(stop.set)
            thread.join(_START_SECONDS)
    if "error" in started:
        raise started["error"]
    assert not thread.is_alive(), "the API server did not stop"
