"""Complete lists make good what no watch has told."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kubernetes.aio.client import ApiClient

from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.kube.api import Api, Page
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


class Server:
    """Answers lists; those of pods with its own."""

    def __init__(self) -> None:
        self.pods = [pod("one", 5), pod("two", 6)]
        self.version = 7
        self.lists = 0

    async def list(self, resource: str, *_: Any) -> Page:
        self.lists += resource == "pods"
        return Page(list(self.pods) if resource == "pods" else [], str(self.version))


def test_a_resync_makes_good_a_deletion_that_no_watch_has_told() -> None:
    async def main() -> None:
        server = Server()
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
