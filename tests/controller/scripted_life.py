"""A job's whole life on the embedded API server, with a controller that is killed on the way.

The life has two Scales, a failure, a suspension and a success. Everybody but the controller acts in
the server's own process: users, kubelet, clock. The controller comes in over HTTP, where an
interceptor counts its calls and can have it killed at any of them, before the call is carried out
or after.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.crds.manifests import MANIFESTS
from penstock_cluster.registry import ApiError, Engine
from penstock_cluster.registry.model import errors

Json = dict[str, Any]

AGENT = "penstock-controller"
JOBS = "elasticjobs.penstock.dev"
SCALES = "scales.penstock.dev"
STAGE_SECONDS = 45.0
"""Longer than a dead leader's Lease and the start of a process on a busy machine together."""


def has_ended(pod: Json) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


@dataclass
class Trap:
    """Kills the controller at one of its calls, once.

    ``point`` counts calls that write, from 1. ``after``: the server still carries the call out, and
    the controller never hears of it; else it does not.
    """

    namespace: str
    point: int = 0
    after: bool = False
    kill: Callable[[], None] | None = None
    calls: list[str] = field(default_factory=list)
    sprung: bool = False

    async def on_request(self, request: Any) -> Any:
        if request.namespace != self.namespace or request.user_agent != AGENT:
            return None
        if request.verb in {"get", "list", "watch"}:
            return None
        self.calls.append(f"{request.verb} {request.resource}")
        if len(self.calls) != self.point or self.kill is None:
            return None
        self.sprung = True
        self.kill()
        await asyncio.sleep(0.1)  # it must not hear the answer
        return None if self.after else errors.service_unavailable("the controller is dead")

    def on_watch_event(self, request: Any, event: Any) -> bool:
        return True


class World:
    """Users and kubelet in one namespace."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._api = engine.api("system:admin", groups=("system:masters",), manager="test")
        self.namespace = namespace
        self.created: Counter[tuple[str, str, str]] = Counter()
        self.stages: list[tuple[str, Json]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        kubelet = asyncio.create_task(self._kubelet())
        try:
            yield
        finally:
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)

    async def _kubelet(self) -> None:
        async with self._api.watch("pods", self.namespace) as events:
            async for event in events:
                pod = event.object
                name = pod["metadata"]["name"]
                if event.type == "ADDED":
                    tags = pod["metadata"]["labels"]
                    self.created[
                        tags["penstock.dev/role"],
                        tags["penstock.dev/rank"],
                        tags["penstock.dev/incarnation"],
                    ] += 1
                if event.type == "DELETED":
                    continue
                try:
                    if "deletionTimestamp" in pod["metadata"]:
                        await self._api.delete("pods", name, self.namespace, grace_period_seconds=0)
                    elif not pod["spec"].get("nodeName"):
                        await self._run(name)
                except ApiError as error:
                    if not (error.is_not_found or error.is_conflict):  # it went meanwhile
                        raise

    async def _run(self, name: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": "node-1"},
        }
        await self._api.create("pods", binding, self.namespace, name=name, subresource="binding")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await self._status(name, {"phase": "Running", "conditions": [ready]})

    async def _status(self, name: str, status: Json) -> None:
        await self._api.patch(
            "pods", name, {"status": status}, self.namespace, kind="strategic", subresource="status"
        )

    async def end(self, name: str, code: int) -> None:
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ended = {"exitCode": code, "finishedAt": _now()}
        await self._status(
            name,
            {
                "phase": "Failed" if code else "Succeeded",
                "conditions": [ready],
                "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
            },
        )

    # The story

    async def live(self) -> None:
        """All stages, each until the job has settled in it."""
        job = await self._api.create(JOBS, _job(), self.namespace)
        uid = job["metadata"]["uid"]
        await self._stage("one worker", lambda: self._settled(1))
        await self._api.create(SCALES, _scale("plan-1", uid, 3), self.namespace)
        await self._stage("three workers", lambda: self._settled(3, "plan-1"))
        await self._api.create(SCALES, _scale("plan-2", uid, 2), self.namespace)
        await self._stage("two workers", lambda: self._settled(2, "plan-2"))
        victim = next(one for one in await self._workers() if "-worker-1-" in one)
        await self.end(victim, 1)
        await self._stage("one replaced", lambda: self._replaced(victim))
        await self._suspend(True)
        await self._stage("suspended", self._suspended)
        await self._suspend(False)
        await self._stage("resumed", lambda: self._settled(2))
        for name in await self._workers():
            await self.end(name, 0)
        await self._stage("succeeded", self._succeeded)
        twice = {one: count for one, count in self.created.items() if count > 1}
        assert not twice, f"created twice: {twice}"

    async def _suspend(self, value: bool) -> None:
        await self._api.patch(JOBS, "life", {"spec": {"suspend": value}}, self.namespace)

    async def _stage(self, name: str, reached: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + STAGE_SECONDS
        while not await reached():
            if loop.time() > end:
                raise AssertionError(f"stage {name!r} not reached: {await self.snapshot()}")
            await asyncio.sleep(0.02)
        self.stages.append((name, await self.snapshot()))

    async def _status_of_job(self) -> Json:
        found: Json = (await self._api.get(JOBS, "life", self.namespace)).get("status") or {}
        return found

    async def _conditions(self) -> dict[str, str]:
        return _conditions_in(await self._status_of_job())

    async def _workers(self) -> list[str]:
        pods = await self._api.list(
            "pods", self.namespace, label_selector="penstock.dev/role=worker"
        )
        return sorted(
            pod["metadata"]["name"]
            for pod in pods.items
            if "deletionTimestamp" not in pod["metadata"] and not has_ended(pod)
        )

    async def _settled(self, count: int, plan: str = "") -> bool:
        status = await self._status_of_job()
        conditions = _conditions_in(status)
        if conditions.get("Running") != "True" or conditions.get("Scaling") != "False":
            return False
        counts = (status.get("replicas") or {}).get("worker") or {}
        applied = not plan or (status.get("plan") or {}).get("name") == plan
        exact = counts.get("desired") == counts.get("ready") == count == len(await self._workers())
        return applied and exact

    async def _replaced(self, victim: str) -> bool:
        return victim not in await self._workers() and await self._settled(2)

    async def _suspended(self) -> bool:
        return (await self._conditions()).get("Suspended") == "True"

    async def _succeeded(self) -> bool:
        if (await self._conditions()).get("Succeeded") != "True":
            return False
        pods = await self._api.list("pods", self.namespace)
        return all(has_ended(pod) for pod in pods.items)

    async def snapshot(self) -> Json:
        """What must be the same however often the controller died.

        Not incarnations: after a crash one may be skipped, and none is ever used twice, which is
        checked apart. Budgets are the same: nothing is counted twice or forgotten.
        """
        status = await self._status_of_job()
        pods = await self._api.list("pods", self.namespace)
        scales = await self._api.list(SCALES, self.namespace)
        ranks = {
            (role, rank): {key: value for key, value in record.items() if key != "incarnation"}
            for role, records in (status.get("ranks") or {}).items()
            for rank, record in records.items()
        }
        return {
            "conditions": {
                one["type"]: (one["status"], one["reason"])
                for one in status.get("conditions") or ()
            },
            "counts": status.get("replicas"),
            "budgets": {"-".join(key): value for key, value in sorted(ranks.items()) if value},
            "plan": status.get("plan"),
            "pods": sorted(
                (
                    pod["metadata"]["labels"]["penstock.dev/role"],
                    pod["metadata"]["labels"]["penstock.dev/rank"],
                    pod["status"].get("phase"),
                )
                for pod in pods.items
                if "deletionTimestamp" not in pod["metadata"]
            ),
            "scales": {
                one["metadata"]["name"]: sorted(
                    (condition["type"], condition["status"], condition["reason"])
                    for condition in (one.get("status") or {}).get("conditions") or ()
                )
                for one in scales.items
            },
        }


def _conditions_in(status: Json) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status.get("conditions") or ()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _job() -> Json:
    container = {
        "name": "main",
        "image": "image",
        "command": ["train"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "life"},
        "spec": {
            "strategy": "AllReduce",
            "optimize": "Manual",
            "replicaSpecs": {"worker": {"template": {"spec": {"containers": [container]}}}},
        },
    }


def _scale(name: str, uid: str, replicas: int) -> Json:
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Scale",
        "metadata": {"name": name},
        "spec": {
            "jobRef": {"name": "life", "uid": uid},
            "roles": {"worker": {"replicas": replicas}},
            "source": "User",
        },
    }


async def install(engine: Engine) -> None:
    """The CRDs."""
    admin = engine.api("system:admin", groups=("system:masters",), manager="test")
    for manifest in MANIFESTS[:2]:
        for crd in manifest.objects():
            await admin.create("customresourcedefinitions.apiextensions.k8s.io", crd)
