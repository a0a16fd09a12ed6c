"""The API for tests: in this process without a socket, or as a server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from penstock.api.app import build_app
from penstock.api.auth import Authenticator
from penstock.api.auth.anonymous import Anonymous
from penstock.brain.assembly import Brain
from penstock.brain.configuration import BrainSettings
from penstock.brain.service.plans import ScaleWriter
from tests.brain.brains import Clock, open_brain

REGISTRATION: dict[str, Any] = {
    "name": "job",
    "namespace": "default",
    "strategy": "AllReduce",
    "roles": {"worker": {"max_replicas": 4, "cpu": "500m", "memory": "512Mi"}},
    "slots_per_step": 4,
    "resource_limits": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": 4},
    "signature": {"dataset": "mnist"},
}


def sample(time: float, **changes: Any) -> dict[str, Any]:
    return {
        "time": time,
        "step": 10,
        "steps_per_second": 2.0,
        "world_size": 1,
        "roles": {"worker": {"0": {"cpu_cores": 0.5, "memory_bytes": 1000}}},
        **changes,
    }


@dataclass(frozen=True)
class Api:
    """A service and a client of it."""

    http: httpx.AsyncClient
    brain: Brain

    async def register(self, uid: str = "uid-1", **changes: Any) -> dict[str, Any]:
        answer = await self.http.put(f"/v1/jobs/{uid}", json={**REGISTRATION, **changes})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


@asynccontextmanager
async def api(
    url: str,
    *,
    authenticator: Authenticator | None = None,
    clock: Clock | None = None,
    settings: BrainSettings | None = None,
    scales: ScaleWriter | None = None,
    headers: dict[str, str] | None = None,
) -> AsyncIterator[Api]:
    """The service without a socket."""
    async with open_brain(url, clock=clock, settings=settings, scales=scales) as brain:
        app = build_app(brain, authenticator or Anonymous())
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://brain", headers=headers
        ) as http:
            yield Api(http, brain)


@asynccontextmanager
async def server(
    url: str,
    *,
    port: int = 0,
    authenticator: Authenticator | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[str, Brain]]:
    """The service on loopback; its address and its Brain."""
    async with open_brain(url, clock=clock) as brain:
        config = uvicorn.Config(
            build_app(brain, authenticator or Anonymous()),
            host="127.0.0.1",
            port=port,
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=3,
        )
        running = uvicorn.Server(config)
        task = asyncio.create_task(running._serve())
        while not running.started:
            assert not task.done()
            await asyncio.sleep(0.01)
        host, bound = running.servers[0].sockets[0].getsockname()[:2]
        try:
            yield f"http://{host}:{bound}", brain
        finally:
            brain.plans.stop()
            running.should_exit = True
            await task


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine, with a time-out of its own."""

    async def bounded() -> None:
        async with asyncio.timeout(50):
            await main()

    asyncio.run(bounded())
