"""A real Prometheus that scrapes what a test runs, and asks it for dashboards."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.scheduler.service.plane import until

PROMETHEUS = shutil.which("prometheus")

needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.asynccontextmanager
async def scraping(folder: Path, targets: Mapping[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    """Scrape HOST:PORT of each target twice a second; yields a client of Prometheus."""
    assert PROMETHEUS is not None
    port = free_port()
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [target]}]}
            for name, target in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = await asyncio.create_subprocess_exec(
        PROMETHEUS,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False
        ) as http:
            yield http
    finally:
        process.terminate()
        await process.wait()


async def answered(http: httpx.AsyncClient, queries: Iterable[str]) -> None:
    """Wait until every query has an answer with a number in it."""

    async def number_for(expression: str) -> bool:
        try:
            reply = await http.get("/api/v1/query", params={"query": expression})
        except httpx.TransportError:
            return False
        if reply.status_code == 503:
            return False  # it is starting
        assert reply.status_code == 200, (expression, reply.text)
        result: list[Any] = reply.json()["data"]["result"]
        return any(one["value"][1] != "NaN" for one in result)

    for query in queries:
        expression = query.replace("$node", ".*")
        await until(f"an answer to {expression}", lambda e=expression: number_for(e), 30)
