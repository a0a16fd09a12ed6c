"""An engine inside an asyncio test: ``run(scenario)`` with the engine's in-process client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from cluster.tests.registry.samples import WIDGETS
from penstock_cluster.registry import Api, Engine, EngineOptions

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
Scenario = Callable[[Engine, Api], Awaitable[None]]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


async def settle(turns: int = 12) -> None:
    """Let the controllers finish what is queued: they work between turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)


def run(scenario: Scenario, options: EngineOptions | None = None, *, widgets: bool = False) -> None:
    """Run a scenario on a fresh engine (with the CRD of :mod:`samples` when asked for)."""

    async def main() -> None:
        async with Engine(options) as engine:
            await settle()
            api = engine.api(manager="tests")
            if widgets:
                await api.create(CRDS, WIDGETS)
                await settle()
            await scenario(engine, api)

    asyncio.run(asyncio.wait_for(main(), 30))
