"""A watch goes on, begins anew where it must, and is tried again with growing pauses."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from penstock.kube.api import Api, Page
from penstock.kube.connection import connect
from penstock.kube.errors import ApiError, ApiRefusedError, ApiUnavailableError
from penstock.kube.watch import Watch
from penstock_cluster.testing import RunningCluster, api_server
from tests.patience import patient

Json = dict[str, Any]


def gone() -> ApiError:
    return ApiRefusedError("too old", code=410, reason="Expired")


def away() -> ApiError:
    return ApiUnavailableError("no answer", code=0, reason="Disconnected")


class Server:
    """Answers lists with nothing; each watch lasts as long as it is told and then ends."""

    def __init__(self, seconds: float = 0.0, error: Callable[[], ApiError] | None = None) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.error = error
        self.events: list[Json] = []
        self.lists = self.watches = 0

    async def list(self, *_: Any) -> Page:
        self.lists += 1
        return Page([], "1")

    @contextlib.asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[Json]]:
        self.watches += 1
        self.now += self.seconds

        async def events() -> AsyncIterator[Json]:
            for event in self.events:
                yield event
            if self.error is not None:
                raise self.error()

        yield events()


def pauses(server: Server, count: int, restarted: list[str] | None = None) -> list[float]:
    """The pauses that a watch makes, until there are so many or as many watches."""
    found: list[float] = []
    causes: list[str] = [] if restarted is None else restarted

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        if len(found) >= count:
            raise asyncio.CancelledError

    def monotonic() -> float:
        if server.watches >= count:
            raise asyncio.CancelledError
        return server.now

    watch = Watch(
        cast("Api", server),
        "pods",
        replace=lambda _: None,
        take=lambda *_: None,
        restarted=causes.append,
        random_source=random.Random(1),
        sleep=sleep,
        monotonic=monotonic,
    )
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(watch.run())
    return found


@pytest.mark.parametrize(
    ("error", "cause"),
    [(None, "ended"), (gone, "expired"), (away, "Disconnected")],
    ids=["ends", "410", "breaks"],
)
def test_watches_that_end_at_once_are_paused_between(
    error: Callable[[], ApiError] | None, cause: str
) -> None:
    server, causes = Server(error=error), list[str]()
    found = pauses(server, 20, causes)
    assert len(found) >= 19, "one pause for each"
    assert found[0] <= 0.4
    assert found[3] > 2 * found[0]
    assert 5.0 <= max(found) <= 10.0
    assert len(causes) >= 19
    assert set(causes) == {cause}


@pytest.mark.parametrize("error", [None, gone], ids=["ends", "410"])
def test_a_watch_that_lasted_is_taken_up_again_at_once(
    error: Callable[[], ApiError] | None,
) -> None:
    server = Server(seconds=240.0, error=error)
    assert pauses(server, 5) == []
    assert server.lists == (5 if error else 1)


@pytest.mark.parametrize(
    ("status", "cause", "lists"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old"}, "expired", 3),
        ({"code": 410, "reason": "Gone"}, "expired", 3),
        ({"code": 500, "reason": "InternalError"}, "InternalError", 1),
        ({}, "0", 1),
    ],
)
def test_an_error_within_a_watch_is_one(status: Json, cause: str, lists: int) -> None:
    server, causes = Server(), list[str]()
    server.events = [{"type": "ERROR", "object": status}]
    pauses(server, 3, causes)
    assert set(causes) == {cause}
    assert server.lists == lists, "the place is still good, unless the server has forgotten it"


def test_a_place_that_was_forgotten_while_the_server_was_away_is_listed_at_once() -> None:
    server = Server()
    answers = [*(away() for _ in range(5)), gone(), away()]
    server.error = lambda: answers[server.watches - 1]
    found = pauses(server, 7)
    assert len(found) == 6  # none after the 410, and then they begin anew
    assert found[5] < 0.5 < found[4]
    assert server.lists == 2


def test_others_get_a_turn_within_a_burst() -> None:
    server, taken, turns = Server(seconds=240.0), list[str](), list[int]()
    server.events = [
        {"type": "ADDED", "object": {"metadata": {"resourceVersion": str(number)}}}
        for number in range(1000)
    ]
    watch = Watch(
        cast("Api", server),
        "pods",
        replace=lambda _: None,
        take=lambda kind, _: taken.append(kind),
        random_source=random.Random(1),
    )

    async def main() -> None:
        running = asyncio.create_task(watch.run())
        while len(taken) < 1000:
            turns.append(len(taken))
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    assert {200, 400, 600, 800} <= set(turns)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as found:
        yield found


def pod(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"watched": "yes"}},
        "spec": {"containers": [{"name": "main", "image": "image"}]},
    }


class Kept:
    """The names of pods, as a watch tells them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.changed = asyncio.Event()

    def replace(self, page: Page) -> None:
        self.names = {one["metadata"]["name"] for one in page.items}
        self.changed.set()

    def take(self, kind: str, found: Json) -> None:
        if kind == "DELETED":
            self.names.discard(found["metadata"]["name"])
        elif kind != "BOOKMARK":
            self.names.add(found["metadata"]["name"])
        self.changed.set()

    async def until(self, names: set[str]) -> None:
        async with asyncio.timeout(patient(20)):
            while self.names != names:
                self.changed.clear()
                await self.changed.wait()


async def forget(cluster: RunningCluster) -> None:
    """Every watch ends and no old place can be taken up again."""
    cluster.engine.store.compact_all()
    cluster.engine.close_watches()


def test_the_list_is_read_again_when_the_place_is_forgotten(cluster: RunningCluster) -> None:
    namespace, causes = cluster.namespace("forgotten"), list[str]()

    async def main() -> None:
        client = await connect(cluster.kubeconfig_path, "tests")
        kept = Kept()
        watch = Watch(
            Api(client),
            "pods",
            replace=kept.replace,
            take=kept.take,
            namespace=namespace,
            selector="watched",
            restarted=causes.append,
            random_source=random.Random(1),
        )
        running = asyncio.create_task(watch.run())
        try:
            async with asyncio.timeout(20):
                await watch.synced.wait()
            cluster.create("pods", pod("first"), namespace)
            await kept.until({"first"})
            # Only a place before the last change can be forgotten.
            cluster.create("pods", {**pod("other"), "metadata": {"name": "other"}}, namespace)
            cluster.run(forget(cluster))
            cluster.delete("pods", "first", namespace, gracePeriodSeconds="0")
            cluster.create("pods", pod("second"), namespace)
            await kept.until({"second"})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    asyncio.run(main())
    assert "expired" in causes
