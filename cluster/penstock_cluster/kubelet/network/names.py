"""The names that pods resolve: a hosts file, kept true to Services and pods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from penstock_cluster.kubelet.network.hosts import HostsFile, records
from penstock_cluster.registry import Api

Json = Mapping[str, Any]

_DELAY_SECONDS: Final = 0.02


class Names:
    """Writes the hosts file some moments after anything in it has changed."""

    def __init__(self, api: Api, hosts: HostsFile) -> None:
        self._api = api
        self._hosts = hosts
        self._pods: dict[str, Json] = {}
        self._services: dict[tuple[str, str], Json] = {}
        self._changed = asyncio.Event()
        hosts.write({})

    def put(self, pod: Json) -> None:
        """A pod is there, or is another than it was."""
        self._pods[pod["metadata"]["uid"]] = pod
        self._changed.set()

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        if self._pods.pop(uid, None) is not None:
            self._changed.set()

    def clear(self) -> None:
        """Forget all pods: they are put again."""
        self._pods.clear()

    async def watch_services(self) -> None:
        """Follow the Services, for ever."""
        while True:
            services = await self._api.list("services")
            self._services = {_key(each): each for each in services.items}
            self._changed.set()
            version = services.resource_version
            async with self._api.watch("services", resource_version=version) as events:
                async for event in events:
                    if event.type == "ERROR":
                        break
                    if event.type == "DELETED":
                        self._services.pop(_key(event.object), None)
                    elif event.type != "BOOKMARK":
                        self._services[_key(event.object)] = event.object
                    self._changed.set()

    async def write(self) -> None:
        """Write whatever changes, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            names = records(self._services.values(), self._pods.values())
            self._hosts.write(names)
            await asyncio.sleep(_DELAY_SECONDS)


def _key(thing: Json) -> tuple[str, str]:
    return thing["metadata"]["namespace"], thing["metadata"]["name"]
