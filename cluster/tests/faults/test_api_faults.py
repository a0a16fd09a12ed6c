"""Faults of the API server, as an HTTP client meets them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest

from cluster.tests.kubelet.clusters import Cluster, pod, run
from penstock_cluster.faults.client import FaultRefusedError, FaultsClient


def client(cluster: Cluster, **options) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {cluster.token}", "User-Agent": "test/1"}
    return httpx.AsyncClient(
        base_url=cluster.url, headers=headers, trust_env=False, timeout=10, **options
    )


PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


async def create_map(cluster: Cluster, name: str = "m") -> None:
    await cluster.api.create("configmaps", {"metadata": {"name": name}}, "default")


def test_a_stalled_server_answers_late_but_answers(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client(cluster) as http:
            await cluster.faults.stall_api(seconds=0.6)
            began = time.monotonic()
            answer = await http.get(PODS)
            assert answer.status_code == 200
            assert time.monotonic() - began >= 0.5
            # The cluster itself goes on meanwhile.
            await cluster.faults.stall_api(seconds=60)
            await cluster.run(pod(script="exit 0"))
            await cluster.ended("p")
            await cluster.faults.clear()
            assert (await http.get(PODS)).status_code == 200

    run(scenario, tmp_path)


def test_slow_answers(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client(cluster) as http:
            await cluster.faults.slow_api(delay_seconds=0.3, resource="pods")
            began = time.monotonic()
            await http.get(MAPS)
            quick = time.monotonic() - began
            await http.get(PODS)
            assert time.monotonic() - began - quick >= 0.3
            assert quick < 0.3

    run(scenario, tmp_path)


def test_errors_at_a_rate(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client(cluster) as http:
            await cluster.faults.fail_api(code=503, rate=0.5, resource="pods")
            codes = [(await http.get(PODS)).status_code for _ in range(60)]
            assert set(codes) == {200, 503}
            assert 15 < codes.count(503) < 45
            await cluster.faults.clear()
            assert (await http.get(PODS)).status_code == 200

    run(scenario, tmp_path)


def test_too_many_requests_says_when_to_come_back(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client(cluster) as http:
            await cluster.faults.fail_api(code=429, times=1)
            answer = await http.get(PODS)
            assert answer.status_code == 429
            assert answer.headers["Retry-After"] == "1"
            assert answer.json()["reason"] == "TooManyRequests"
            assert (await http.get(PODS)).status_code == 200

    run(scenario, tmp_path)


def test_conflicts_on_the_next_writes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_map(cluster)
        async with client(cluster) as http:
            await cluster.faults.conflict_writes(times=2, resource="configmaps")
            headers = {"Content-Type": "application/merge-patch+json"}
            body = json.dumps({"data": {"a": "1"}})
            codes = []
            for _ in range(3):
                assert (await http.get(f"{MAPS}/m")).status_code == 200
                answer = await http.patch(f"{MAPS}/m", content=body, headers=headers)
                codes.append((answer.status_code, answer.json().get("reason")))
            assert codes == [(409, "Conflict"), (409, "Conflict"), (200, None)]

    run(scenario, tmp_path)


async def collect(
    http: httpx.AsyncClient, into: list[dict], opened: asyncio.Event, version: str = ""
) -> None:
    query = {"watch": "1", "timeoutSeconds": "20", "resourceVersion": version}
    async with http.stream("GET", MAPS, params=query) as answer:
        opened.set()
        async for line in answer.aiter_lines():
            into.append(json.loads(line))  # noqa: PERF401  read while it grows


def names(events: list[dict]) -> list[str]:
    return [each["object"]["metadata"]["name"] for each in events]


def test_dropped_watch_events_are_never_seen(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client(cluster) as http:
            events: list[dict] = []
            opened = asyncio.Event()
            version = (await cluster.api.list("configmaps")).resource_version
            watching = asyncio.create_task(collect(http, events, opened, version))
            await opened.wait()
            await cluster.faults.drop_watch_events(times=1, resource="configmaps")
            await create_map(cluster, "lost")
            await asyncio.sleep(0.2)
            await create_map(cluster, "seen")
            await asyncio.sleep(0.3)
            watching.cancel()
            assert names(events) == ["seen"]

    run(scenario, tmp_path)


def test_closed_watches_end_without_an_error(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client(cluster) as http:
            events: list[dict] = []
            opened = asyncio.Event()
            version = (await cluster.api.list("configmaps")).resource_version
            watching = asyncio.create_task(collect(http, events, opened, version))
            await opened.wait()
            await asyncio.sleep(0.1)
            assert await cluster.faults.close_watches(resource="configmaps") == 1
            async with asyncio.timeout(5):
                await watching
            assert events == []

    run(scenario, tmp_path)


def test_an_expired_watch_tells_410_as_an_event(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client(cluster) as http:
            version = (await cluster.api.list("configmaps")).resource_version
            await cluster.faults.expire_watches(times=1, resource="configmaps")
            events: list[dict] = []
            async with asyncio.timeout(5):
                await collect(http, events, asyncio.Event(), version)
            [event] = events
            assert event["type"] == "ERROR"
            assert event["object"]["code"] == 410
            assert event["object"]["reason"] == "Expired"

    run(scenario, tmp_path)


def test_a_skewed_clock(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.skew_clock(seconds=3600)
        created = await cluster.api.create("configmaps", {"metadata": {"name": "m"}}, "default")
        await cluster.faults.clear()
        other = await cluster.api.create("configmaps", {"metadata": {"name": "n"}}, "default")
        early = other["metadata"]["creationTimestamp"]
        late = created["metadata"]["creationTimestamp"]
        assert late > early

    run(scenario, tmp_path)


def test_faults_over_http(tmp_path: Path) -> None:
    def from_elsewhere(cluster: Cluster) -> None:
        with FaultsClient(cluster.url, cluster.token, cluster.server.ca_pem) as faults:
            assert len(faults.names()) >= 25
            assert faults("kill_container", name="p") > 0
            for arguments, told in (
                ({"name": "p", "pod": "x"}, "pod"),
                ({}, "name"),
                ({"name": "p", "container": 7}, "container"),
                ({"name": "nobody"}, "default/nobody"),
            ):
                with pytest.raises(FaultRefusedError, match=told):
                    faults("kill_container", **arguments)
            with pytest.raises(FaultRefusedError, match="kill_container"):
                faults("no_such_fault")

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="sleep 60"))
        await cluster.ready("p")
        await asyncio.to_thread(from_elsewhere, cluster)
        assert (await cluster.ended("p"))["status"]["phase"] == "Failed"

    run(scenario, tmp_path, tls=True)


def test_only_administrators_may_inject_faults(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
        answer = await cluster.api.create(
            "serviceaccounts", request, "default", name="default", subresource="token"
        )
        headers = {"Authorization": f"Bearer {answer['status']['token']}"}
        async with client(cluster) as http:
            path = "/faults/clear"
            assert (await http.post(path, headers=headers)).status_code == 403
            assert (await http.post(path, headers={"Authorization": ""})).status_code in {401, 403}
            assert (await http.post(path)).status_code == 200

    run(scenario, tmp_path)
