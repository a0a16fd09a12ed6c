"""An embedded cluster for one test, and the few calls that the tests of the kubelet share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster
from penstock_cluster.kubelet.state.backoff import BackoffOptions
from penstock_cluster.node_lifecycle import LifecycleOptions
from penstock_cluster.nodes import NodeDeclaration
from penstock_cluster.registry import ApiError, LogQuery

Json = dict[str, Any]

BUSY = 6.0
"""How many times slower than a quiet machine one may be: tests wait so much longer."""
QUICK_BACKOFF = BackoffOptions(first_seconds=0.2, longest_seconds=0.4)


class Cluster(EmbeddedCluster):
    """The embedded cluster with short-hands."""

    async def pod(self, name: str, namespace: str = "default") -> Json:
        return await self.api.get("pods", name, namespace)

    async def run(self, *pods: Json) -> None:
        for pod in pods:
            await self.api.create("pods", pod)

    async def pod_until(
        self, name: str, condition: Callable[[Json], object], what: str, seconds: float = 15
    ) -> Json:
        """The pod as soon as the condition holds for it."""
        found: list[Json] = []

        async def holds() -> bool:
            found[:] = [await self.pod(name)]
            return bool(condition(found[0]))

        await until(holds, f"pod {name}: {what}", seconds, lambda: found and found[0]["status"])
        return found[0]

    async def ended(self, name: str, seconds: float = 15) -> Json:
        """The pod once it has succeeded or failed."""
        return await self.pod_until(
            name, lambda pod: pod["status"].get("phase") in {"Succeeded", "Failed"}, "ends", seconds
        )

    async def ready(self, name: str, seconds: float = 15) -> Json:
        return await self.pod_until(name, is_ready, "is ready", seconds)

    async def gone(self, name: str, seconds: float = 15) -> None:
        async def holds() -> bool:
            return not await self.exists(name)

        await until(holds, f"pod {name} is gone", seconds)

    async def exists(self, name: str) -> bool:
        try:
            await self.pod(name)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        return True

    async def log(self, name: str, container: str = "main", **query: Any) -> str:
        pod = await self.pod(name)
        pieces = [piece async for piece in self.kubelet.read(pod, LogQuery(container, **query))]
        return b"".join(pieces).decode()

    async def log_until(self, name: str, text: str, seconds: float = 15) -> str:
        async def holds() -> bool:
            try:
                return text in await self.log(name)
            except ApiError:
                return False

        await until(holds, f"log of {name} holds {text!r}", seconds)
        return await self.log(name)

    async def events(self, name: str) -> set[str]:
        events = await self.api.list("events", "default")
        return {each["reason"] for each in events.items if each["involvedObject"]["name"] == name}


async def until(
    condition: Callable[[], Awaitable[bool]],
    what: str,
    seconds: float = 15,
    context: Callable[[], object] = lambda: "",
) -> None:
    deadline = time.monotonic() + BUSY * seconds
    while not await condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s; {context()}"
        await asyncio.sleep(0.02)


def run(
    scenario: Callable[[Cluster], Awaitable[None]],
    folder: Path,
    *nodes: NodeDeclaration,
    seconds: float = 40,
    **options: Any,
) -> None:
    """Run a scenario on a cluster of its own; ``seconds``: that a quiet machine needs at most."""

    async def main() -> None:
        options.setdefault("backoff", QUICK_BACKOFF)
        options.setdefault("lifecycle", LifecycleOptions(silence_seconds=0.2, orphan_seconds=0.2))
        options.setdefault("tls", False)
        chosen = nodes or (NodeDeclaration("n1"),)
        settings = ClusterOptions(nodes=chosen, folder=folder / "pods", **options)
        async with asyncio.timeout(BUSY * seconds), Cluster(settings) as cluster:
            await scenario(cluster)

    asyncio.run(main())


def pod(name: str = "p", script: str = "", **spec: Any) -> Json:
    """A pod whose container ``main`` runs a shell script; never restarted unless said."""
    labels = spec.pop("labels", {})
    container = spec.pop("container", {})
    main = {"name": "main", "image": "any", "command": ["sh", "-c", script], **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
            **spec,
        },
    }


def python(name: str, source: str, **spec: Any) -> Json:
    """A pod whose container ``main`` runs Python source, unbuffered."""
    container = {"command": ["python", "-u", "-c", source], **spec.pop("container", {})}
    return pod(name, container=container, **spec)


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def condition(pod: Json, kind: str) -> Json:
    return next(each for each in pod["status"]["conditions"] if each["type"] == kind)


def container(pod: Json, name: str = "main") -> Json:
    status = pod["status"]
    every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    unknown: Json = {"state": {}, "restartCount": 0}
    return next((each for each in every if each["name"] == name), unknown)


def terminated(pod: Json, name: str = "main") -> Json:
    return container(pod, name)["state"]["terminated"]


def is_running(pid: int) -> bool:
    """Whether a process of this machine is there and no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
