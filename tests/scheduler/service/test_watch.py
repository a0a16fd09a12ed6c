"""A watch that does not work is tried again with growing pauses."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from penstock.scheduler.metrics import Metrics
from penstock.scheduler.service.api import GONE, Api, RefusedError
from penstock.scheduler.service.watch import Json, Watch


class Hasty:
    """Every watch ends at once."""

    def __init__(self, gone: bool) -> None:
        self.gone = gone
        self.watches = 0

    async def list(self, _: str) -> tuple[list[Json], str]:
        return [], "1"

    @contextlib.asynccontextmanager
    async def watch(self, *_: Any) -> AsyncIterator[AsyncIterator[Json]]:
        self.watches += 1
        assert self.watches <= 12, "a watch without a pause before it"
        if self.gone:
            raise RefusedError("too old", GONE, "Expired")

        async def events() -> AsyncIterator[Json]:
            return
            yield {}

        yield events()


@pytest.mark.parametrize("gone", [False, True], ids=["ends", "410"])
def test_watches_that_end_at_once_are_paused_between(
    gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 12:
            raise asyncio.CancelledError

    monkeypatch.setattr("penstock.scheduler.service.watch.asyncio.sleep", sleep)
    watch = Watch(
        cast("Api", Hasty(gone)), "pods",
        replace=lambda _: None, put=lambda _: None, remove=lambda _: None,
        metrics=Metrics(), random_source=random.Random(1),
    )  # fmt: skip

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(watch.run())
    assert len(pauses) == 12
    assert pauses[0] <= 0.4
    assert 5.0 <= max(pauses) <= 10.0
