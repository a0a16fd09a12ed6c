"""A cluster with one operator under test: its server, its users' jobs, and what it was asked.

The embedded API server, the stand-ins and whoever plays the users share one process; the operator
has one of its own, and so has the client by which the server's own speed is measured.

With stand-ins each pod is bound some time after it was made, Running some time after that, and
Ready later still, all by chance of the seed: what a scheduler and kubelets write, without either.
Their writes do not go over HTTP and are counted nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.pods import replica_pod
from penstock.controller.reconcile.desired.targets import RankTarget
from penstock.controller.reconcile.model.parsing import read_job, read_spec
from penstock.crds.manifests import MANIFESTS
from penstock_cluster.apiserver import ServeOptions, serve
from penstock_cluster.registry import Api, ApiError, Engine, EngineOptions

Json = dict[str, Any]

OWN_AGENT: Final = "benchmark"
TOKEN: Final = "BENCHMARK_TOKEN"
LIMIT_SECONDS: Final = 900.0
START_SECONDS: Final = 120.0
"""For an operator to start, on a machine that does other things, too."""
_QUIET_SECONDS: Final = 5.0
_ENDLESS: Final = frozenset({"leases", "configmaps"})
"""What an operator asks for however little there is to do: its Leases, and how many shards there
are."""
_BOUND_WITHIN_SECONDS: Final = 2.0
_RUNNING_WITHIN_SECONDS: Final = 3.0
_READY_WITHIN_SECONDS: Final = 3.0


class Counting:
    """Counts the requests of the operator under test, by what they ask for."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.last = 0.0

    async def on_request(self, request: Any) -> None:
        if request.user_agent == OWN_AGENT:
            return
        below = f"/{request.subresource}" if request.subresource else ""
        self.requests[f"{request.verb} {request.resource}{below}"] += 1
        if request.resource not in _ENDLESS:
            self.last = time.monotonic()

    def on_watch_event(self, request: Any, event: Any) -> bool:
        return True

    async def quiet(self) -> None:
        """Wait until the operator has asked for nothing but what never ends for a while."""
        await until("quiet", lambda: time.monotonic() - self.last > _QUIET_SECONDS)


class Watcher:
    """When which job had how many pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.created: dict[str, list[float]] = {}
        self.pods = 0
        self.last = 0.0

    async def run(self) -> None:
        async with self._api.watch("pods", label_selector="penstock.dev/job") as events:
            async for event in events:
                if event.type == "ADDED" and "for" not in event.object["metadata"]["labels"]:
                    name = event.object["metadata"]["labels"]["penstock.dev/job"]
                    self.last = time.perf_counter()
                    self.created.setdefault(name, []).append(self.last)
                    self.pods += 1


@dataclass(frozen=True)
class World:
    """A server with the CRDs, seen from all sides.

    ``server_writes`` is what it sustained before anything else ran, in pods a second.
    """

    api: Api
    kubeconfig: Path
    counting: Counting
    watcher: Watcher
    server_writes: float


class StandIns:
    """What a scheduler and kubelets do to pods, as far as the API server sees it."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api = api
        self._generator = random.Random(seed)

    async def run(self) -> None:
        """Take every new pod to Ready until cancelled."""
        async with (
            self._api.watch("pods", label_selector="penstock.dev/job") as events,
            asyncio.TaskGroup() as group,
        ):
            async for event in events:
                if event.type == "ADDED":
                    pauses = [
                        self._generator.uniform(0.0, most)
                        for most in (
                            _BOUND_WITHIN_SECONDS,
                            _RUNNING_WITHIN_SECONDS,
                            _READY_WITHIN_SECONDS,
                        )
                    ]
                    group.create_task(self._start(event.object["metadata"], *pauses))

    async def _start(self, metadata: Json, bound: float, running: float, ready: float) -> None:
        name = metadata["name"]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}}
        started = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        with contextlib.suppress(ApiError):  # it has ended meanwhile
            await asyncio.sleep(bound)
            await self._api.create(
                "pods", binding, metadata["namespace"], name=name, subresource="binding"
            )
            await asyncio.sleep(running)
            status = {"phase": "Running", "containerStatuses": [started]}
            await self._write(metadata, status)
            await asyncio.sleep(ready)
            await self._write(metadata, {"conditions": [{"type": "Ready", "status": "True"}]})

    async def _write(self, metadata: Json, status: Json) -> None:
        await self._api.patch(
            "pods",
            metadata["name"],
            {"metadata": {"uid": metadata["uid"]}, "status": status},
            metadata["namespace"],
            kind="strategic",
            subresource="status",
        )


@contextlib.asynccontextmanager
async def world(folder: Path, *, stand_ins_seed: int | None) -> AsyncIterator[World]:
    """A fresh server until the block ends.

    Args:
        folder: for its kubeconfig.
        stand_ins_seed: by which pods are bound and made Ready; None: they stay Pending.
    """
    async with Engine(EngineOptions()) as engine, serve(engine, ServeOptions()) as server:
        api = engine.api("system:admin", groups=("system:masters",), manager="benchmark")
        for manifest in MANIFESTS[:2]:
            for crd in manifest.objects():
                await api.create("customresourcedefinitions.apiextensions.k8s.io", crd)
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        sustained = await server_writes_per_second(server.url, server.token)
        await api.delete_collection("pods", "default", label_selector="for=measure")
        counting, watcher = Counting(), Watcher(api)
        engine.interceptor = counting
        tasks = [asyncio.create_task(watcher.run())]
        if stand_ins_seed is not None:
            tasks.append(asyncio.create_task(StandIns(api, stand_ins_seed).run()))
        try:
            yield World(api, kubeconfig, counting, watcher, sustained)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def job(name: str, workers: int) -> Json:
    """An ElasticJob of that many workers that asks nobody for a plan."""
    container = {
        "name": "main",
        "image": "image",
        "command": ["train"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "strategy": "AllReduce",
            "optimize": "Manual",
            "replicaSpecs": {
                "worker": {
                    "replicas": workers,
                    "template": {"spec": {"containers": [container]}},
                }
            },
        },
    }


async def server_writes_per_second(url: str, token: str) -> float:
    """Creations of pods by a client process that does nothing else."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.controller",
        f"--writer={url}",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, TOKEN: token},
    )
    out, _ = await process.communicate()
    return float(out)


async def write_pods(url: str, token: str, seconds: float = 5.0) -> float:
    """The client process of `server_writes_per_second`."""
    template = worker_pod()
    headers = {"Authorization": f"Bearer {token}", "User-Agent": OWN_AGENT}
    path = f"{url}/api/v1/namespaces/default/pods"
    done = 0
    begun = time.perf_counter()

    async def writer(session: aiohttp.ClientSession, number: int) -> None:
        nonlocal done
        count = 0
        while time.perf_counter() - begun < seconds:
            count += 1
            metadata = {**template["metadata"], "name": f"write-{number}-{count}"}
            body = {**template, "metadata": metadata}
            async with session.post(path, json=body) as answer:
                await answer.read()
                assert answer.status == 201, await answer.text()
            done += 1

    async def watcher(session: aiohttp.ClientSession) -> None:
        query = {"watch": "true", "labelSelector": "for=measure"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with session.get(path, params=query, timeout=timeout) as answer:
            async for _ in answer.content.iter_any():
                pass

    async with aiohttp.ClientSession(headers=headers, read_bufsize=2**21) as session:
        watching = asyncio.create_task(watcher(session))
        await asyncio.gather(*(writer(session, number) for number in range(32)))
        rate = done / (time.perf_counter() - begun)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return rate


def worker_pod() -> Json:
    """A pod as the controller makes it, but of no job."""
    raw = job("measure", 1)
    raw["metadata"].update(uid="none", resourceVersion="1")
    spec, fault = read_spec(raw["spec"])
    assert spec is not None, fault
    pod = replica_pod(read_job(raw, spec, ""), spec, Role.WORKER, 0, 0, RankTarget())
    pod["metadata"] = {"labels": {**pod["metadata"]["labels"], "for": "measure"}}
    return pod


@contextlib.asynccontextmanager
async def operator(command: tuple[str, ...], kubeconfig: Path) -> AsyncIterator[psutil.Process]:
    """The operator under test as a process; it has started when it prints its line."""
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed below
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        if not line:
            log.seek(0)
            raise RuntimeError(f"{command} did not start: {log.read()[-2000:]}")
        yield psutil.Process(process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        log.close()


async def until(what: str, probe: Callable[[], bool]) -> None:
    """Wait for a condition; TimeoutError names it."""
    end = time.monotonic() + LIMIT_SECONDS
    while not probe():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {LIMIT_SECONDS} s: {what}")
        await asyncio.sleep(0.02)
