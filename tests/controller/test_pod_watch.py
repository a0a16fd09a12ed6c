"""A watch of pods that does not work is tried again with growing pauses, and made good by lists."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from kubernetes.aio.client import ApiClient

from penstock.controller.api import Api, ApiError, ApiRefusedError, Page
from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.controller.pod_watch import PodWatch
from penstock.controller.store import Store
from tests.controller.life import SETTINGS

Json = dict[str, Any]


def pod(name: str, version: int) -> Json:
    tags = {"job": "job", "job-uid": "uid", "role": "worker", "rank": "0", "incarnation": "0"}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {f"penstock.dev/{key}": value for key, value in tags.items()},
        },
        "spec": {},
    }


def gone() -> ApiError:
    return ApiRefusedError("too old", code=410, reason="Expired")


class Server:
    """Answers lists with its pods; each watch lasts as long as it is told and then ends."""

    def __init__(self, seconds: float = 0.0, error: Callable[[], ApiError] | None = None) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.error = error
        self.pods: list[Json] = []
        self.version = 1
        self.lists = self.watches = 0

    async def list(self, resource: str, *_: Any) -> Page:
        self.lists += resource == "pods"
        items = list(self.pods) if resource == "pods" else []
        return Page(items, str(self.version))

    @contextlib.asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[Json]]:
        self.watches += 1
        self.now += self.seconds

        async def events() -> AsyncIterator[Json]:
            if self.error is not None:
                raise self.error()
            return
            yield {}

        yield events()


def pauses(server: Server, count: int) -> list[float]:
    """The pauses that a watch makes, until there are so many or as many watches."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        if len(found) >= count:
            raise asyncio.CancelledError

    def monotonic() -> float:
        if server.watches >= count:
            raise asyncio.CancelledError
        return server.now

    watch = PodWatch(
        cast("Api", server), Store(lambda _: None), Metrics(), None, random.Random(1),
        sleep=sleep, monotonic=monotonic,
    )  # fmt: skip
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(watch.run())
    return found


@pytest.mark.parametrize("error", [None, gone], ids=["ends", "410"])
def test_watches_that_end_at_once_are_paused_between(
    error: Callable[[], ApiError] | None,
) -> None:
    server = Server(error=error)
    found = pauses(server, 20)
    assert len(found) >= 19, "one pause for each"
    assert found[0] <= 0.4
    assert found[3] > 2 * found[0]
    assert 5.0 <= max(found) <= 10.0


@pytest.mark.parametrize("error", [None, gone], ids=["ends", "410"])
def test_a_watch_that_lasted_is_taken_up_again_at_once(
    error: Callable[[], ApiError] | None,
) -> None:
    server = Server(seconds=240.0, error=error)
    assert pauses(server, 5) == []
    assert server.lists == (5 if error else 1)


def test_a_resync_makes_good_a_deletion_that_no_watch_has_told() -> None:
    async def main() -> None:
        server = Server()
        server.pods, server.version = [pod("one", 5), pod("two", 6)], 7
        operator = Operator(ApiClient(), Options(SETTINGS), Metrics())
        operator.api = cast("Api", server)
        operator._pods._api = cast("Api", server)
        await operator.resync()
        assert server.lists == 0, "the watch's own first list is still to come"
        await operator._pods._list()
        assert operator.store.counts()["pods"] == 2
        server.pods, server.version = [pod("two", 6)], 9
        await operator.resync()
        assert [one.name for one in operator.store.pods(("ns", "job"), "uid")] == ["two"]
        operator.queue.close()

    asyncio.run(main())
