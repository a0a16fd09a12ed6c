"""The kubelet of all nodes: watches pods, keeps one worker for each, keeps nodes and names alive.

Guarantees: a pod bound to a node of this cluster is run once; what a watch may have missed is found
again by listing; a pod that was running when an earlier kubelet ended is marked Failed and never
taken up, since its processes ended with that kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from penstock_cluster.events import EventRecorder
from penstock_cluster.kubelet.container.context import KubeletOptions, Services
from penstock_cluster.kubelet.container.cores import CoreAllocator
from penstock_cluster.kubelet.container.devices import DeviceAllocator
from penstock_cluster.kubelet.container.disturbances import Disturbances
from penstock_cluster.kubelet.container.logs import read_log
from penstock_cluster.kubelet.container.runtime import Runtime
from penstock_cluster.kubelet.network.addresses import LOOPBACK, AddressBlock
from penstock_cluster.kubelet.network.hosts import Blackhole, HostsFile
from penstock_cluster.kubelet.network.names import Names
from penstock_cluster.kubelet.network.relay import Relay
from penstock_cluster.kubelet.node.lost_pods import let_go, mark_lost
from penstock_cluster.kubelet.node.node_object import Node
from penstock_cluster.kubelet.node.node_reporter import NodeReporter
from penstock_cluster.kubelet.node.noop import NoopPods
from penstock_cluster.kubelet.pod.worker import PodWorker, Stop
from penstock_cluster.kubelet.state.folder import held_folder, remove_leftovers
from penstock_cluster.nodes import NodeDeclaration
from penstock_cluster.registry import ApiError, Engine, LogQuery
from penstock_cluster.requests import is_finished
from penstock_cluster.watchdog import keep_running

Json = Mapping[str, Any]

_STOP_GRACE_SECONDS = 2.0


class KubeletError(Exception):
    """The kubelet cannot run here; the message says why and what to do."""


class Kubelet:
    """Runs the pods of its nodes; use as an async context manager."""

    def __init__(
        self, engine: Engine, options: KubeletOptions, api_server: tuple[str, int]
    ) -> None:
        self.engine = engine
        self.options = options
        self.api = engine.api("system:node:kubelet", manager="kubelet")
        self.runtime = Runtime()
        self.disturbances = Disturbances()
        self.nodes: dict[str, Node] = {}
        self.workers: dict[str, PodWorker] = {}
        self._api_server = api_server
        self._tasks: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._stack = contextlib.AsyncExitStack()
        self._reporter = NodeReporter(engine, self.api, self.nodes, options.heartbeat_seconds)

    async def __aenter__(self) -> Self:
        if sys.platform != "linux":
            raise KubeletError(
                "pods run as processes on Linux only (/proc, prctl and 127.0.0.0/8 are needed); "
                "use a cluster that exists already, through its kubeconfig"
            )
        self._stack.enter_context(held_folder(self.options.folder))
        present = {pod["metadata"]["uid"] for pod in (await self.api.list("pods")).items}
        remove_leftovers(self.options.folder, present)
        addresses = AddressBlock()
        self._stack.callback(addresses.close)
        blackhole = Blackhole(addresses.reserved)
        self._stack.callback(blackhole.close)
        relay = Relay(self.options.folder / "relay", addresses.reserved)
        self._stack.push_async_callback(relay.aclose)
        if self.options.runs_processes:
            await self._stack.enter_async_context(self.runtime)
        self.services = Services(
            engine=self.engine,
            api=self.api,
            options=self.options,
            runtime=self.runtime,
            cores=CoreAllocator(self.options.cores),
            devices=DeviceAllocator(self.options.gpus),
            addresses=addresses,
            events=EventRecorder(self.api, "kubelet", self.engine.timestamp),
            disturbances=self.disturbances,
            blackhole=blackhole,
            relay=relay,
            api_server=self._api_server,
        )
        self.noop = NoopPods(self.engine, self.api, addresses)
        self._names = Names(self.api, HostsFile(self.services.hosts_file))
        self.engine.logs = self
        self._spawn(self._watch_pods, "kubelet-pods")
        self._spawn(self._reporter.follow, "kubelet-nodes")
        if self.options.runs_processes:
            self._spawn(self._names.watch_services, "kubelet-services")
            self._spawn(self._names.write, "kubelet-names")
        if self.options.heartbeat_seconds > 0:
            self._spawn(self._reporter.heartbeat, "kubelet-heartbeat")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The cluster goes, its objects with it or kept in the database: either way no status is
        # written any more; a later kubelet marks these pods as lost.
        for worker in self.workers.values():
            worker.node.is_silent = True
            worker.stop(Stop(_STOP_GRACE_SECONDS))
        if self._running:
            await asyncio.wait(self._running, timeout=2 * _STOP_GRACE_SECONDS)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self.engine.logs is self:
            self.engine.logs = None
        await self._stack.aclose()

    def _spawn(self, loop: Callable[[], Awaitable[None]], name: str) -> None:
        self._tasks.append(asyncio.create_task(keep_running(loop, name), name=name))

    # Nodes

    async def add_node(self, declaration: NodeDeclaration) -> None:
        """Register a node, Ready; one of that name that is there already becomes Ready again."""
        stored = await self._reporter.register(declaration)
        self.nodes[declaration.name] = Node(declaration, LOOPBACK, stored)
        await self._look_again(declaration.name)

    async def remove_node(self, name: str) -> None:
        """Take a node out of the cluster: its processes end, its Node object is deleted."""
        node = self.nodes.pop(name)
        self._end_processes(node)
        with contextlib.suppress(ApiError):
            await self.api.delete("nodes", name)

    async def lose_node(self, name: str, *, processes_survive: bool = False) -> None:
        """From now on nobody hears from the node; its processes end unless they survive."""
        node = self.nodes[name]
        if not processes_survive:
            self._end_processes(node)
        node.is_silent = True

    def is_silent(self, name: str) -> bool:
        """Whether the node is lost. One that no kubelet runs here is not ours to judge."""
        node = self.nodes.get(name)
        return node is not None and node.is_silent

    async def return_node(self, name: str) -> None:
        """The node reports again and learns what happened meanwhile."""
        node = self.nodes[name]
        node.is_silent = False
        await self._reporter.post_ready(node)
        await self._look_again(name)

    def slow_node(self, name: str, percent: int | None) -> None:
        """Containers of the node, present and to come, run at this speed; None ends that."""
        node = self.nodes[name]
        node.percent = percent
        for worker in self.workers.values():
            if worker.node is node:
                for runner in worker.runners.values():
                    runner.slow(percent)

    def _end_processes(self, node: Node) -> None:
        for uid, worker in list(self.workers.items()):
            if worker.node is node and not worker.is_finished:
                worker.abandon()
                del self.workers[uid]

    async def _look_again(self, node_name: str) -> None:
        pods = await self.api.list("pods", field_selector=f"spec.nodeName={node_name}")
        present = {pod["metadata"]["uid"] for pod in pods.items}
        for uid, worker in list(self.workers.items()):
            if worker.node.name == node_name and uid not in present:
                self._forget(uid)
        for pod in pods.items:
            await self._handle(pod)
            worker_of_pod = self.workers.get(pod["metadata"]["uid"])
            if worker_of_pod is not None:
                await worker_of_pod.catch_up()

    # Pods

    async def _watch_pods(self) -> None:
        while True:
            pods = await self.api.list("pods")
            present = {pod["metadata"]["uid"] for pod in pods.items}
            for uid in set(self.workers) - present:
                self._forget(uid)
            self._names.clear()
            for pod in pods.items:
                await self._take(pod)
            async with self.api.watch("pods", resource_version=pods.resource_version) as events:
                async for event in events:
                    if event.type == "DELETED":
                        self._drop(event.object)
                    elif event.type in {"ADDED", "MODIFIED"}:
                        await self._take(event.object)
                    elif event.type == "ERROR":
                        break

    async def _take(self, pod: Json) -> None:
        if not pod["spec"].get("nodeName"):
            return
        if self.options.runs_processes:
            self._names.put(pod)
        await self._handle(pod)

    def _drop(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        self._names.drop(uid)
        if self.options.runs_processes:
            self._forget(uid)
        else:
            self.noop.forget(pod)

    async def _handle(self, pod: Json) -> None:
        """Look at one pod again, whatever brought it up."""
        node = self.nodes.get(pod["spec"].get("nodeName") or "")
        if node is None or node.is_silent:
            return
        if not self.options.runs_processes:
            await self.noop.sync(node, pod)
            return
        worker = self.workers.get(pod["metadata"]["uid"])
        if worker is not None:
            await worker.update(pod)
        elif is_finished(pod):
            await let_go(self.api, pod)
        elif (pod.get("status") or {}).get("startTime"):
            await mark_lost(self.api, pod, self.engine.timestamp())
        else:
            await self._start(node, pod)

    async def _start(self, node: Node, pod: Json) -> None:
        worker = PodWorker(self.services, node, pod)
        self.workers[worker.uid] = worker
        await worker.update(pod)
        task = asyncio.create_task(worker.run(), name=f"worker-{pod['metadata']['name']}")
        self._running.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            if self.workers.get(worker.uid) is not worker:
                worker.remove_folder()

        task.add_done_callback(ended)

    def _forget(self, uid: str) -> None:
        worker = self.workers.pop(uid, None)
        if worker is None:
            return
        worker.forget()
        if worker.is_finished:
            worker.remove_folder()

    def worker_of(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a pod by name; the newest where one of that name is still ending."""
        for worker in reversed(self.workers.values()):
            metadata = worker.pod["metadata"]
            if metadata["name"] == name and metadata["namespace"] == namespace:
                return worker
        return None

    # Logs

    async def read(self, pod: Json, query: LogQuery) -> AsyncIterator[bytes]:
        """Serve ``pods/log``; see :mod:`logs`."""
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        folder = self.options.folder / name / "logs" / query.container
        worker = self.workers.get(metadata["uid"])

        def is_running(path: Any) -> bool:
            return worker is not None and worker.writes_to(query.container, path)

        async for piece in read_log(folder, pod, query, self.engine.now(), is_running):
            yield piece
