"""What runs in the background of a Brain goes on after a fault that nobody foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.brain.assembly import Brain, _repeat
from penstock.brain.configuration import (
    AdministratorSettings,
    BrainSettings,
    RetentionSettings,
)
from tests.brain.brains import open_brain

QUICK = BrainSettings(
    administrator=AdministratorSettings(tick_seconds=0.01),
    retention=RetentionSettings(sweep_seconds=0.01),
)
Fault = Callable[[], Awaitable[None]]


def administrators(brain: Brain, fault: Fault, patch: pytest.MonkeyPatch) -> Awaitable[None]:
    patch.setattr(brain.administrators, "tick", fault)
    return brain.administrators.run()


def sweeper(brain: Brain, fault: Fault, patch: pytest.MonkeyPatch) -> Awaitable[None]:
    patch.setattr(brain.sweeper, "sweep", fault)
    return brain.sweeper.run()


def scales(brain: Brain, fault: Fault, patch: pytest.MonkeyPatch) -> Awaitable[None]:
    return _repeat(brain, "scales", fault, 0.01)


@pytest.mark.parametrize("begin", [administrators, sweeper, scales])
def test_a_fault_is_logged_counted_and_tried_again(
    begin: Callable[[Brain, Fault, pytest.MonkeyPatch], Awaitable[None]],
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> float:
        rounds = 0
        thrice = asyncio.Event()

        async def fault() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 3:
                thrice.set()
            raise KeyError("a row that nobody can read")

        async with open_brain(sqlite_url, settings=QUICK) as brain:
            running = asyncio.ensure_future(begin(brain, fault, monkeypatch))
            async with asyncio.timeout(10):
                await thrice.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            name = begin.__name__
            return brain.metrics.failures.labels(name)._value.get()

    assert asyncio.run(main()) >= 2
    assert "fault in the Brain" in caplog.text
    assert "a row that nobody can read" in caplog.text
