"""The server as a process's part: ports, TLS, stopping, what is mounted, faults, impersonation."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml

from cluster.tests.registry.samples import config_map, pod
from penstock_cluster.apiserver import ServeOptions, serve
from penstock_cluster.registry import ApiError, EngineOptions, RequestFacts, WatchEvent
from penstock_cluster.registry.model import errors
from penstock_cluster.testing import RunningCluster, api_server


@pytest.fixture(scope="module")
def strict() -> Iterator[RunningCluster]:
    with api_server(EngineOptions(rbac=True)) as cluster:
        yield cluster


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        async with serve() as server:
            port = int(server.url.rpartition(":")[2])
            with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
                async with serve(server.engine, ServeOptions(port=port)):
                    pass

    asyncio.run(scenario())


def test_with_tls_the_kubeconfig_holds_the_authority_and_pods_get_it_too() -> None:
    with api_server(serving=ServeOptions(tls=True)) as cluster:
        config = yaml.safe_load(cluster.kubeconfig_path.read_text())
        assert config["clusters"][0]["cluster"]["certificate-authority-data"]
        assert cluster.kubeconfig_path.stat().st_mode & 0o077 == 0
        assert cluster.ok("GET", "/version")["minor"] == "36"
        assert cluster.server.ca_pem is not None
        authority = cluster.server.ca_pem.decode()
        cluster.wait(
            lambda: (
                cluster.get("configmaps", "kube-root-ca.crt", "default")["data"]["ca.crt"]
                == authority
            ),
            "the bundle to hold the authority",
        )
        stranger = ssl.create_default_context()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"{cluster.url}/version", timeout=5, context=stranger)


def test_stopping_ends_open_watches_at_once() -> None:
    seen: list[int] = []
    with api_server() as cluster:
        request = urllib.request.Request(
            f"{cluster.url}/api/v1/pods?watch=1",
            headers={"Authorization": f"Bearer {cluster.token}"},
        )
        reply = urllib.request.urlopen(request, timeout=20)
        reader = threading.Thread(target=lambda: seen.append(len(reply.read())))
        reader.start()
        cluster.wait(lambda: cluster.engine.open_watches, "the watch to be open")
        begun = time.monotonic()
    reader.join(5)
    reply.close()
    assert seen == [0]
    assert time.monotonic() - begun < 4


def test_a_connection_that_comes_as_the_server_stops_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late: list[socket.socket] = []
    goes_on = uvicorn.Server.main_loop

    async def stops(self: uvicorn.Server) -> None:
        await goes_on(self)
        address = self.servers[0].sockets[0].getsockname()
        late.append(socket.create_connection(address, 5.0))
        for _ in range(2):  # in which it is accepted, and no protocol has it yet
            await asyncio.sleep(0)

    monkeypatch.setattr(uvicorn.Server, "main_loop", stops)

    async def scenario() -> None:
        async with serve():
            pass
        with late[0] as client:
            assert client.recv(1) == b""

    asyncio.run(scenario())


def test_an_expired_token_is_401(strict: RunningCluster) -> None:
    answer = strict.request("GET", "/api/v1/pods", token="nonsense")
    assert answer.status == 401
    assert answer.json["reason"] == "Unauthorized"


def test_impersonation_needs_the_right_and_then_holds(strict: RunningCluster) -> None:
    as_ada = {"Impersonate-User": "ada"}
    answer = strict.request("GET", "/api/v1/namespaces/default/pods", headers=as_ada)
    assert answer.status == 403
    assert 'User "ada" cannot list resource "pods"' in answer.json["message"]
    token = strict.account_token("default", "default")
    answer = strict.request("GET", "/version", headers=as_ada, token=token)
    assert answer.status == 403
    assert "impersonate" in answer.json["message"]


def test_what_is_mounted_is_for_administrators() -> None:
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    with api_server(serving=ServeOptions(mounts={"/extra": mounted})) as cluster:
        assert cluster.request("GET", "/extra/x").text == "/extra/x"
        token = cluster.account_token("default", "default")
        assert cluster.request("GET", "/extra/x", token=token).status == 403
        assert cluster.request("GET", "/extraordinary").status == 404


class _Faults:
    """Refuses writes of ConfigMaps, loses MODIFIED events, loses watches of Secrets."""

    async def on_request(self, request: RequestFacts) -> ApiError | None:
        if request.verb == "create" and request.resource == "configmaps":
            return errors.service_unavailable("try later", retry_after=7)
        if request.verb == "watch" and request.resource == "secrets":
            return errors.expired("too old resource version: 1 (2)")
        return None

    def on_watch_event(self, request: RequestFacts, event: WatchEvent) -> bool:
        return event.type != "MODIFIED"


def test_an_interceptor_refuses_requests_and_drops_events(cluster: RunningCluster) -> None:
    cluster.engine.interceptor = _Faults()
    answer = cluster.request("POST", cluster.path("configmaps", "default"), config_map())
    assert answer.status == 503
    assert answer.headers["retry-after"] == ["7"]
    lost = cluster.request("GET", "/api/v1/secrets?watch=1&timeoutSeconds=5")
    assert lost.status == 200
    assert json.loads(lost.text)["object"]["code"] == 410
    cluster.create("pods", pod("p"), "default")
    cluster.patch("pods", "p", {"metadata": {"labels": {"x": "y"}}}, "default")
    cluster.delete("pods", "p", "default")
    listed = cluster.request("GET", "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=101")
    kinds = [json.loads(line)["type"] for line in listed.text.splitlines()]
    assert kinds == ["ADDED", "DELETED"]


def test_close_watches_ends_streams_without_an_error(cluster: RunningCluster) -> None:
    answers: list[str] = []
    path = "/api/v1/nodes?watch=1&timeoutSeconds=30"
    reader = threading.Thread(target=lambda: answers.append(cluster.request("GET", path).text))
    reader.start()
    cluster.wait(lambda: cluster.engine.open_watches, "the watch to be open")
    assert cluster.run(_closed(cluster, "pods")) == 0
    assert cluster.run(_closed(cluster, "nodes")) == 1
    reader.join(5)
    assert answers == [""]


async def _closed(cluster: RunningCluster, resource: str) -> int:
    return cluster.engine.close_watches(lambda facts: facts.resource == resource)


def test_a_broken_request_is_a_500_and_the_server_lives(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patching:
        patching.setattr(cluster.engine.operations, "get", broken)
        answer = cluster.request("GET", cluster.path("pods", "default", "p"))
    assert answer.status == 500
    assert answer.json["reason"] == "InternalError"
    assert "a bug" in caplog.text
    assert cluster.request("GET", "/healthz").text == "ok"


def test_metrics_count_objects_and_watches(cluster: RunningCluster) -> None:
    text = cluster.request("GET", "/metrics").text
    assert 'apiserver_storage_objects{resource="namespaces"} 4' in text
    assert "apiserver_registered_watchers 0" in text


def test_nobody_is_told_that_something_was_written_which_cannot_be_saved(tmp_path: Path) -> None:
    with api_server(EngineOptions(database=tmp_path / "state.sqlite")) as cluster:

        def pragma(text: str) -> int:
            async def work() -> int:
                assert cluster.engine._journal is not None
                (found,) = cluster.engine._journal._connection.execute(f"PRAGMA {text}").fetchone()
                return int(found)

            return cluster.run(work())

        pragma(f"max_page_count={pragma('page_count')}")
        taken = 0
        while True:
            large = config_map(f"one-{taken}", a="x" * 50_000)
            answer = cluster.request("POST", "/api/v1/namespaces/default/configmaps", large)
            if answer.status == 503:
                break
            taken += 1
        assert "state.sqlite: database or disk is full" in answer.json["message"]
        assert answer.headers["retry-after"] == ["1"]
        assert cluster.account_token("default", "default")  # writes nothing
        assert len(cluster.list("configmaps", "default")) >= taken
        pragma("max_page_count=1000000")
        cluster.wait(lambda: not cluster.engine.unsaved, "what gathered to be saved")
        cluster.create("configmaps", config_map("again"), "default")
    with api_server(EngineOptions(database=tmp_path / "state.sqlite")) as cluster:
        names = {one["metadata"]["name"] for one in cluster.list("configmaps", "default")}
        assert names >= {"again", *(f"one-{number}" for number in range(taken))}


def test_state_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    options = EngineOptions(database=tmp_path / "state.sqlite")
    with api_server(options) as cluster:
        cluster.create("configmaps", config_map("kept", a="1"), "default")
        token = cluster.token
    with api_server(options) as cluster:
        assert cluster.token == token
        assert cluster.get("configmaps", "kept", "default")["data"] == {"a": "1"}
