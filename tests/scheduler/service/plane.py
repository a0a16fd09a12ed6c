"""An embedded cluster whose pods run at once, and a planner on it, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock.kube.api import Api
from penstock.kube.connection import connect
from penstock.scheduler.service.loop import Loop, Options
from penstock.scheduler.service.metrics import Metrics
from penstock.scheduler.service.process import USER_AGENT
from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster
from penstock_cluster.nodes import NodeDeclaration
from tests.patience import patient

Json = dict[str, Any]
GATE = {"name": "penstock.dev/placement"}
GPU = "nvidia.com/gpu"


def pod(name: str, cpu: str, gpus: int = 0, *, gated: bool = False, **spec: Any) -> Json:
    limits = {"cpu": cpu, "memory": "64Mi"} | ({GPU: gpus} if gpus else {})
    tags = {
        "penstock.dev/job": "j",
        "penstock.dev/job-uid": "u",
        "penstock.dev/role": "data-worker",
    }
    document: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": tags if gated else {}},
        "spec": {
            "containers": [{"name": "m", "image": "busybox", "resources": {"limits": limits}}],
            **spec,
        },
    }
    if gated:
        document["spec"]["schedulingGates"] = [GATE, *spec.get("schedulingGates", ())]
    return document


class Plane:
    """The cluster as a test's author sees it."""

    def __init__(self, cluster: EmbeddedCluster, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.kubeconfig = kubeconfig

    async def create(self, *documents: Json) -> None:
        for document in documents:
            await self.api.create("pods", document, "default")

    async def get(self, name: str) -> Json:
        found: Json = await self.api.get("pods", name, "default")
        return found

    async def node_of(self, name: str) -> str:
        return str((await self.get(name))["spec"].get("nodeName", ""))

    @contextlib.asynccontextmanager
    async def planner(self, **options: Any) -> AsyncIterator[Loop]:
        """A planner that runs until the end of the block."""
        client = await connect(self.kubeconfig, USER_AGENT)
        loop = Loop(Api(client), None, Options(**options), Metrics())
        task = asyncio.create_task(loop.run())
        try:
            await loop.synced.wait()
            yield loop
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here


@contextlib.asynccontextmanager
async def plane(folder: Path, *nodes: NodeDeclaration, rbac: bool = False) -> AsyncIterator[Plane]:
    """A cluster with these nodes, its CRDs installed."""
    from penstock.crds.manifests import MANIFESTS

    options = ClusterOptions(nodes=nodes, folder=folder / "pods", runs_processes=False, rbac=rbac)
    async with EmbeddedCluster(options) as cluster:
        for manifest in MANIFESTS[:2]:
            for document in manifest.objects():
                await cluster.api.create("customresourcedefinitions.apiextensions.k8s.io", document)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(cluster.kubeconfig)
        yield Plane(cluster, kubeconfig)


async def until(what: str, probe: Callable[[], Awaitable[Any]], seconds: float = 15.0) -> Any:
    """Poll until the probe gives something true, and return it."""
    try:
        async with asyncio.timeout(patient(seconds)):
            while not (found := await probe()):  # noqa: ASYNC110  the server says nothing
                await asyncio.sleep(0.02)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None
