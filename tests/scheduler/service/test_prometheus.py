"""Every query of the cluster's dashboard, answered by a Prometheus that scrapes a scheduler."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.kube.api import Api
from penstock.kube.connection import connect
from penstock.kube.probes import ProbeServer
from penstock.scheduler.dashboards.cluster import CLUSTER
from penstock.scheduler.service.process import USER_AGENT
from penstock_cluster.nodes import NodeDeclaration
from tests.scheduler.prometheus import answered, needs_prometheus, scraping
from tests.scheduler.service.plane import GPU, Plane, plane, pod, until

pytestmark = [needs_prometheus, pytest.mark.slow]


async def some_life(cluster: Plane) -> None:
    """A full GPU node, data workers that were placed, and one that was not."""
    await cluster.create(pod("busy", "4", 2), *(pod(f"d{i}", "1", gated=True) for i in range(3)))
    await cluster.create(pod("large", "100", gated=True))

    async def placed() -> bool:
        return all([await cluster.node_of(f"d{i}") for i in range(3)])

    await until("data workers are placed", placed)


async def more_life(cluster: Plane) -> None:
    """A small data worker now and then: a rate needs something to happen between two scrapes."""
    for number in range(60):
        await cluster.create(pod(f"more{number}", "5m", gated=True))
        await asyncio.sleep(0.5)


def test_every_query_has_an_answer(tmp_path: Path) -> None:
    async def story() -> None:
        nodes = [NodeDeclaration("gpu", cpu="8", memory="8Gi", accelerators={GPU: 4})]
        async with plane(tmp_path, *nodes) as cluster, cluster.planner() as loop:
            client = await connect(cluster.kubeconfig, USER_AGENT)
            try:
                probes = ProbeServer("127.0.0.1", 0, loop.metrics.registry, Api(client), "nodes")
                async with probes:
                    await some_life(cluster)
                    arrivals = asyncio.create_task(more_life(cluster))
                    try:
                        target = {"scheduler": probes.url.removeprefix("http://")}
                        async with scraping(tmp_path, target) as prometheus:
                            await answered(prometheus, CLUSTER.queries())
                    finally:
                        arrivals.cancel()
                        await asyncio.gather(arrivals, return_exceptions=True)
            finally:
                # The library is untyped here.
                await client.close()  # type: ignore[no-untyped-call]

    asyncio.run(story())
