"""The benchmark of gate and pin counts every binding, also one that no watch was there to show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import gate_and_pin
from penstock.kube.api import Api
from penstock.kube.connection import connect
from penstock_cluster.testing import RunningCluster, api_server

PODS = 20


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        yield running


async def bind_all(cluster: RunningCluster) -> None:
    """Bind all pods as soon as they are there; whoever watches then is cut off just before."""
    api = cluster.engine.api()
    while True:
        pods = (await api.list("pods")).items
        if len(pods) == PODS:
            break
        await asyncio.sleep(0.01)
    assert cluster.engine.close_watches() == 1
    while cluster.engine.open_watches:  # noqa: ASYNC110  nothing tells when they have ended
        await asyncio.sleep(0.01)
    for pod in pods:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        binding: dict[str, Any] = {"metadata": {"name": name}, "target": {"name": "node"}}
        await api.create("pods", binding, namespace, name=name, subresource="binding")


def test_a_watch_that_the_server_closes_goes_on(cluster: RunningCluster) -> None:
    async def run() -> dict[str, Any]:
        client = await connect(cluster.kubeconfig_path, "benchmark")
        try:
            binding = asyncio.create_task(asyncio.to_thread(cluster.run, bind_all(cluster)))
            result = await gate_and_pin.run(Api(client), PODS, "test", gated=False)
            await binding
        finally:
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here
        return result

    result = asyncio.run(run())
    assert result["bound"] == result["pods"] == PODS - PODS // gate_and_pin.OTHERS
