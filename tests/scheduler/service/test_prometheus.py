"""Every query of the dashboards, answered by a Prometheus that scrapes a running scheduler."""

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from penstock.local.nodes import NodeDeclaration
from penstock.scheduler.dashboards import queries
from penstock.scheduler.service.api import Api
from penstock.scheduler.service.health import HealthServer
from penstock.scheduler.service.process import connect
from tests.scheduler.service.plane import GPU, Plane, plane, pod, until

PROMETHEUS = shutil.which("prometheus")

pytestmark = [
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed"),
    pytest.mark.slow,
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def start(folder: Path, target: str, port: int) -> Any:
    job = {"job_name": "scheduler", "static_configs": [{"targets": [target]}]}
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [job],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    assert PROMETHEUS is not None
    return asyncio.create_subprocess_exec(
        PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


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
            client = await connect(cluster.kubeconfig)
            try:
                async with HealthServer("127.0.0.1", 0, loop.metrics, Api(client)) as health:
                    await some_life(cluster)
                    arrivals = asyncio.create_task(more_life(cluster))
                    try:
                        await ask(tmp_path, health.url.removeprefix("http://"))
                    finally:
                        arrivals.cancel()
                        await asyncio.gather(arrivals, return_exceptions=True)
            finally:
                await client.close()  # type: ignore[no-untyped-call]

    async def ask(folder: Path, target: str) -> None:
        port = free_port()
        prometheus = await start(folder, target, port)
        try:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False
            ) as http:
                for query in queries():
                    expression = query.replace("$node", ".*")

                    async def answered(expression: str = expression) -> bool:
                        try:
                            reply = await http.get("/api/v1/query", params={"query": expression})
                        except httpx.TransportError:
                            return False
                        if reply.status_code == 503:
                            return False  # it is starting
                        assert reply.status_code == 200, (expression, reply.text)
                        result = reply.json()["data"]["result"]
                        return bool(result) and all(one["value"][1] != "NaN" for one in result)

                    await until(f"an answer to {expression}", answered, 30)
        finally:
            prometheus.terminate()
            await prometheus.wait()

    asyncio.run(story())
