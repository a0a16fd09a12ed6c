"""A component's loop that fails is logged and begun again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from penstock_cluster import watchdog


def test_it_begins_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "PAUSE_SECONDS", 0.0)
    runs = []

    async def loop() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise RuntimeError("an odd object")

    with caplog.at_level(logging.ERROR):
        asyncio.run(watchdog.keep_running(loop, "binder"))
    assert len(runs) == 3
    assert "an odd object" in caplog.text


def test_it_can_be_cancelled() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(watchdog.keep_running(asyncio.Event().wait, "x"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
