"""What becomes of pods whose node is gone: the node lifecycle, taint and pod collectors in one.

A node that nobody hears from becomes Ready=Unknown and is tainted after a grace period; its pods
become not ready. Pods that do not tolerate a NoExecute taint, or no longer, are deleted, with
condition DisruptionTarget; what is then still bound to a Node that does not exist any more is
removed by force. Everything is decided from the present state, twice a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from penstock_cluster.registry import ApiError, Engine, thaw
from penstock_cluster.requests import is_finished
from penstock_cluster.scheduler.nodes.selectors import tolerates
from penstock_cluster.watchdog import keep_running

Json = Mapping[str, Any]

UNREACHABLE = "node.kubernetes.io/unreachable"
_POLL_SECONDS = 0.5
_FINISHED_POLLS = 40
_STAMP = "%Y-%m-%dT%H:%M:%SZ"


class Hearing(Protocol):
    """Which nodes are heard from."""

    def is_silent(self, node_name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class LifecycleOptions:
    """The values of a real cluster; tests shorten them."""

    silence_seconds: float = 40.0
    """How long a node may be silent before it counts as lost."""
    orphan_seconds: float = 40.0
    """How long pods may stay bound to a Node that does not exist."""
    most_finished_pods: int = 12_500
    """Of more pods that have ended, the oldest are deleted."""


def seconds_tolerated(pod_spec: Json, taint: Json) -> float | None:
    """How long the pod may stay under a NoExecute taint; None: for ever, 0: not at all."""
    matching = [
        toleration
        for toleration in pod_spec.get("tolerations") or ()
        if tolerates(toleration, taint)
    ]
    if not matching:
        return 0.0
    limits = [each["tolerationSeconds"] for each in matching if "tolerationSeconds" in each]
    return float(max(0, min(limits))) if limits else None


class NodeLifecycle:
    """Looks after nodes and the pods on them; use as an async context manager."""

    def __init__(self, engine: Engine, hearing: Hearing, options: LifecycleOptions) -> None:
        self._engine = engine
        self._api = engine.api("system:node-controller", manager="kube-controller-manager")
        self._hearing = hearing
        self.options = options
        self._silent_since: dict[str, datetime] = {}
        self._orphans_since: dict[str, datetime] = {}
        self._nodes_seen: set[str] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(
            keep_running(self._run, "node-lifecycle"), name="node-lifecycle"
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        for turn in itertools.count():
            await self.look()
            if turn % _FINISHED_POLLS == 0:
                await self.collect_finished()
            await asyncio.sleep(_POLL_SECONDS)

    async def collect_finished(self) -> None:
        """Delete the oldest of the pods that have ended, where there are too many."""
        pods = [pod for pod in (await self._api.list("pods")).items if is_finished(pod)]
        surplus = len(pods) - self.options.most_finished_pods
        if surplus <= 0:
            return
        pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        for pod in pods[:surplus]:
            metadata = pod["metadata"]
            with contextlib.suppress(ApiError):  # gone already
                await self._api.delete(
                    "pods", metadata["name"], metadata["namespace"], uid=metadata["uid"]
                )

    async def look(self) -> None:
        """Look at all nodes once."""
        nodes = {node["metadata"]["name"]: node for node in (await self._api.list("nodes")).items}
        for name, node in nodes.items():
            await self._look_at(name, node)
        tainted = [node for node in nodes.values() if _no_execute_taints(node)]
        for node in tainted:
            await self._evict_from(node)
        await self._collect_orphans(set(nodes))

    async def _look_at(self, name: str, node: Json) -> None:
        now = self._engine.now()
        if not self._hearing.is_silent(name):
            self._silent_since.pop(name, None)
            if any(taint["key"] == UNREACHABLE for taint in _taints(node)):
                await self._set_taints(node, [])
            return
        since = self._silent_since.setdefault(name, now)
        if now - since < timedelta(seconds=self.options.silence_seconds):
            return
        if not any(taint["key"] == UNREACHABLE for taint in _taints(node)):
            stamp = now.strftime(_STAMP)
            await self._declare_lost(node, stamp)
            taint = {"key": UNREACHABLE, "timeAdded": stamp}
            effects = ("NoSchedule", "NoExecute")
            await self._set_taints(node, [{**taint, "effect": effect} for effect in effects])

    async def _declare_lost(self, node: Json, stamp: str) -> None:
        name = node["metadata"]["name"]
        unknown = [
            {
                "type": condition["type"],
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": stamp,
            }
            for condition in node["status"].get("conditions") or ()
        ]
        with contextlib.suppress(ApiError):  # the Node was deleted meanwhile
            await self._api.patch(
                "nodes",
                name,
                {"status": {"conditions": unknown}},
                kind="strategic",
                subresource="status",
            )
        for pod in await self._pods_on(name):
            if not is_finished(pod):
                await self._set_condition(pod, "Ready", "False", "NodeNotReady", "", stamp)

    async def _set_taints(self, node: Json, unreachable: list[dict[str, Any]]) -> None:
        others = [thaw(dict(each)) for each in _taints(node) if each["key"] != UNREACHABLE]
        taints = [*others, *unreachable] or None
        with contextlib.suppress(ApiError):
            await self._api.patch("nodes", node["metadata"]["name"], {"spec": {"taints": taints}})

    async def _evict_from(self, node: Json) -> None:
        now = self._engine.now()
        for pod in await self._pods_on(node["metadata"]["name"]):
            if pod["metadata"].get("deletionTimestamp") or is_finished(pod):
                continue
            for taint in _no_execute_taints(node):
                seconds = seconds_tolerated(pod["spec"], taint)
                if seconds is None:
                    continue
                added = taint.get("timeAdded")
                since = datetime.fromisoformat(added) if added else now - timedelta(days=1)
                if now >= since + timedelta(seconds=seconds):
                    await self._evict(pod)
                    break

    async def _evict(self, pod: Json) -> None:
        stamp = self._engine.timestamp()
        message = "Taint manager: deleting due to NoExecute taint"
        await self._set_condition(
            pod, "DisruptionTarget", "True", "DeletionByTaintManager", message, stamp
        )
        metadata = pod["metadata"]
        with contextlib.suppress(ApiError):  # gone meanwhile
            await self._api.delete(
                "pods", metadata["name"], metadata["namespace"], uid=metadata["uid"]
            )

    async def _collect_orphans(self, nodes: set[str]) -> None:
        pods = (await self._api.list("pods")).items if self._may_have_orphans(nodes) else []
        now = self._engine.now()
        orphans = {
            pod["metadata"]["uid"]: pod
            for pod in pods
            if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in nodes
        }
        self._orphans_since = {uid: self._orphans_since.get(uid, now) for uid in orphans}
        for uid, pod in orphans.items():
            if now - self._orphans_since[uid] < timedelta(seconds=self.options.orphan_seconds):
                continue
            stamp = now.strftime(_STAMP)
            if not is_finished(pod):
                message = "PodGC: node no longer exists"
                await self._set_condition(
                    pod,
                    "DisruptionTarget",
                    "True",
                    "DeletionByPodGC",
                    message,
                    stamp,
                    phase="Failed",
                )
            metadata = pod["metadata"]
            with contextlib.suppress(ApiError):  # gone meanwhile
                await self._api.delete(
                    "pods",
                    metadata["name"],
                    metadata["namespace"],
                    grace_period_seconds=0,
                    uid=uid,
                )

    def _may_have_orphans(self, nodes: set[str]) -> bool:
        """Listing all pods twice a second would cost a loaded cluster much: only after a change."""
        changed = nodes != self._nodes_seen
        self._nodes_seen = nodes
        return changed or bool(self._orphans_since)

    async def _pods_on(self, name: str) -> list[dict[str, Any]]:
        return (await self._api.list("pods", field_selector=f"spec.nodeName={name}")).items

    async def _set_condition(
        self,
        pod: Json,
        kind: str,
        status: str,
        reason: str,
        message: str,
        stamp: str,
        *,
        phase: str | None = None,
    ) -> None:
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message or None,
            "lastTransitionTime": stamp,
        }
        change: dict[str, Any] = {"conditions": [condition]}
        if phase is not None:
            change["phase"] = phase
        metadata = pod["metadata"]
        with contextlib.suppress(ApiError):  # gone meanwhile
            await self._api.patch(
                "pods",
                metadata["name"],
                {"status": change},
                metadata["namespace"],
                kind="strategic",
                subresource="status",
            )


def _taints(node: Json) -> list[Json]:
    return list((node.get("spec") or {}).get("taints") or ())


def _no_execute_taints(node: Json) -> list[Json]:
    return [taint for taint in _taints(node) if taint.get("effect") == "NoExecute"]
