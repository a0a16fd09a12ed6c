"""The binder's shell: watches pods and nodes, binds what fits, says why the rest does not.

Level-triggered: whatever changed, the pods that wait are looked at again, the most important first
and then the oldest. Guarantees: a gated pod is never bound; a pod is counted on its node before the
binding is written, so that no node is over-committed while a watch lags behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from penstock_cluster.events import EventRecorder
from penstock_cluster.registry import ApiError, Engine
from penstock_cluster.registry.model.selectors import LabelSelector
from penstock_cluster.requests import is_finished
from penstock_cluster.scheduler.nodes.fit import unschedulable_message
from penstock_cluster.scheduler.nodes.inventory import Inventory, Occupant
from penstock_cluster.scheduler.placement import Placement, shape_key
from penstock_cluster.scheduler.preemption import (
    IsProtected,
    Preemption,
    choose_preemption,
    may_preempt,
)
from penstock_cluster.watchdog import keep_running

Json = Mapping[str, Any]

logger = logging.getLogger(__name__)
SCHEDULER_NAME = "default-scheduler"
_BINDINGS_PER_TURN = 32
"""After so many the event loop gets its turn, so that the API server answers meanwhile."""


class Binder:
    """Binds pods to nodes; use as an async context manager."""

    def __init__(self, engine: Engine, *, records_events: bool = True) -> None:
        self._engine = engine
        self._api = engine.api("system:kube-scheduler", manager="kube-scheduler")
        self._events = EventRecorder(self._api, SCHEDULER_NAME, engine.timestamp)
        self._records_events = records_events
        self.inventory = Inventory()
        self._placement = Placement(self.inventory)
        self._waiting: dict[str, Json] = {}
        self._told: dict[str, str] = {}
        self._terminating: set[str] = set()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loops = {
            "binder-nodes": self._watch_nodes,
            "binder-pods": self._watch_pods,
            "binder": self._bind_for_ever,
        }
        self._tasks = [
            asyncio.create_task(keep_running(loop, name), name=name) for name, loop in loops.items()
        ]
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

    # Observing

    async def _watch_nodes(self) -> None:
        while True:
            nodes = await self._api.list("nodes")
            present = {node["metadata"]["name"] for node in nodes.items}
            for name in [account.name for account in self.inventory]:
                if name not in present:
                    self.inventory.remove_node(name)
            for node in nodes.items:
                self.inventory.put_node(node)
            self._changed.set()
            async with self._api.watch("nodes", resource_version=nodes.resource_version) as events:
                async for event in events:
                    if event.type == "ERROR":
                        break
                    if event.type == "DELETED":
                        self.inventory.remove_node(event.object["metadata"]["name"])
                    elif event.type != "BOOKMARK":
                        self.inventory.put_node(event.object)
                    self._changed.set()

    async def _watch_pods(self) -> None:
        while True:
            pods = await self._api.list("pods")
            present = {pod["metadata"]["uid"] for pod in pods.items}
            known = {uid for account in self.inventory for uid in account.occupants}
            for uid in (known | set(self._waiting)) - present:
                self._forget(uid)
            for pod in pods.items:
                self._observe(pod)
            async with self._api.watch("pods", resource_version=pods.resource_version) as events:
                async for event in events:
                    if event.type == "ERROR":
                        break
                    if event.type == "DELETED":
                        self._forget(event.object["metadata"]["uid"])
                    elif event.type != "BOOKMARK":
                        self._observe(event.object)

    def _forget(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._told.pop(uid, None)
        self._terminating.discard(uid)
        self.inventory.remove_pod(uid)
        self._changed.set()

    def _observe(self, pod: Json) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        uid = metadata["uid"]
        if is_finished(pod):
            self._forget(uid)
        elif spec.get("nodeName"):
            if metadata.get("deletionTimestamp"):
                self._terminating.add(uid)
            self._waiting.pop(uid, None)
            self._told.pop(uid, None)
            position = self.inventory.position
            self.inventory.put_pod(Occupant.of(pod), spec["nodeName"])
            if self.inventory.position != position:
                self._changed.set()
        elif (
            metadata.get("deletionTimestamp")
            or spec.get("schedulingGates")
            or spec.get("schedulerName", SCHEDULER_NAME) != SCHEDULER_NAME
        ):
            self._waiting.pop(uid, None)
        elif self.inventory.place_of(uid) is None:
            is_new = uid not in self._waiting
            self._waiting[uid] = pod
            if is_new or uid not in self._told:
                self._changed.set()

    # Binding

    async def _bind_for_ever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._pass()

    async def _pass(self) -> None:
        """Look at every waiting pod once."""
        hopeless: dict[bytes, str] = {}
        for turn, uid in enumerate(sorted(self._waiting, key=self._order), 1):
            if turn % _BINDINGS_PER_TURN == 0:
                await asyncio.sleep(0)
            pod = self._waiting.get(uid)
            if pod is None:
                continue
            occupant = Occupant.of(pod)
            node_name = self._placement.choose(pod, occupant)
            if node_name is not None:
                await self._bind(pod, occupant, node_name)
                continue
            shape = shape_key(pod["spec"], occupant)
            message = hopeless.get(shape)
            if message is None:
                if await self._make_room(pod, occupant):
                    continue
                message = self._explain(pod, occupant)
                hopeless[shape] = message
            await self._tell(pod, message)

    def _order(self, uid: str) -> tuple[int, str, str, str]:
        pod = self._waiting[uid]
        metadata = pod["metadata"]
        priority = pod["spec"].get("priority") or 0
        return (-priority, metadata["creationTimestamp"], metadata["name"], uid)

    async def _bind(self, pod: Json, occupant: Occupant, node_name: str) -> None:
        self._waiting.pop(occupant.uid, None)
        nominated = self.inventory.nomination_of(occupant.uid)
        self.inventory.put_pod(occupant, node_name)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": occupant.name, "uid": occupant.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }
        try:
            await self._api.create(
                "pods", binding, occupant.namespace, name=occupant.name, subresource="binding"
            )
        except ApiError as error:
            # Deleted, gated or bound by somebody else: the watch tells what became of it.
            logger.debug("binding %s/%s: %s", occupant.namespace, occupant.name, error.message)
            self.inventory.remove_pod(occupant.uid)
            if nominated is not None:
                self.inventory.nominate(occupant, nominated)
            return
        if self._records_events:
            where = f"{occupant.namespace}/{occupant.name} to {node_name}"
            message = f"Successfully assigned {where}"
            await self._events.record(pod, "Pod", "Scheduled", message)

    def _explain(self, pod: Json, occupant: Occupant) -> str:
        refusals = self._placement.refusals(pod, occupant)
        return unschedulable_message(refusals, may_preempt=may_preempt(pod["spec"]))

    async def _tell(self, pod: Json, message: str) -> None:
        uid = pod["metadata"]["uid"]
        if self._told.get(uid) == message:
            return
        self._told[uid] = message
        await self._patch_status(
            pod,
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": message,
                        "lastTransitionTime": self._engine.timestamp(),
                    }
                ]
            },
        )
        if self._records_events:
            await self._events.record(pod, "Pod", "FailedScheduling", message, warning=True)

    # Preemption

    async def _make_room(self, pod: Json, occupant: Occupant) -> bool:
        """Remove less important pods so that this one fits; whether room is on its way."""
        if not may_preempt(pod["spec"]):
            return False
        if self._waits_for_victims(occupant):
            return True
        is_protected = await self._protection()
        found = choose_preemption(pod, occupant, self.inventory, is_protected)
        if found is None:
            if self.inventory.nomination_of(occupant.uid) is not None:
                self.inventory.withdraw_nomination(occupant.uid)
                await self._patch_status(pod, {"nominatedNodeName": None})
            return False
        await self._preempt(pod, occupant, found)
        return True

    def _waits_for_victims(self, occupant: Occupant) -> bool:
        """Whether pods that were removed for this one are still on their way out."""
        nominated = self.inventory.nomination_of(occupant.uid)
        account = self.inventory.get(nominated) if nominated is not None else None
        return account is not None and any(
            uid in self._terminating and other.priority < occupant.priority
            for uid, other in account.occupants.items()
        )

    async def _preempt(self, pod: Json, occupant: Occupant, found: Preemption) -> None:
        self.inventory.nominate(occupant, found.node_name)
        await self._patch_status(pod, {"nominatedNodeName": found.node_name})
        await self._tell(pod, self._explain(pod, occupant))
        for victim in found.victims:
            self._terminating.add(victim.uid)
            await preempt(self._engine, victim.namespace, victim.name, victim.uid)
            if self._records_events:
                metadata = {
                    "name": victim.name,
                    "namespace": victim.namespace,
                    "uid": victim.uid,
                }
                message = f"Preempted by pod {occupant.uid} on node {found.node_name}"
                await self._events.record({"metadata": metadata}, "Pod", "Preempted", message)

    async def _protection(self) -> IsProtected:
        """Which pods a PodDisruptionBudget does not let go at present."""
        budgets = await self._api.list("poddisruptionbudgets.policy")
        closed = [
            (budget["metadata"]["namespace"], LabelSelector.of(budget["spec"].get("selector")))
            for budget in budgets.items
            if ((budget.get("status") or {}).get("disruptionsAllowed") or 0) <= 0
        ]

        def is_protected(victim: Occupant) -> bool:
            return any(
                namespace == victim.namespace and selector.matches(victim.labels)
                for namespace, selector in closed
            )

        return is_protected

    async def _patch_status(self, pod: Json, status: dict[str, Any]) -> None:
        await patch_status(self._api, pod["metadata"], status)


async def patch_status(api: Any, metadata: Json, status: dict[str, Any]) -> None:
    """Merge into the status of a pod; nothing happens when it is gone."""
    try:
        await api.patch(
            "pods",
            metadata["name"],
            {"metadata": {"uid": metadata["uid"]}, "status": status},
            metadata["namespace"],
            kind="strategic",
            subresource="status",
        )
    except ApiError as error:
        if not (error.is_not_found or error.is_conflict):
            raise


async def preempt(engine: Engine, namespace: str, name: str, uid: str) -> None:
    """Remove a pod as kube-scheduler removes a victim: condition DisruptionTarget, then DELETE."""
    api = engine.api("system:kube-scheduler", manager="kube-scheduler")
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": f"{SCHEDULER_NAME}: preempting to accommodate a higher priority pod",
        "lastTransitionTime": engine.timestamp(),
    }
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    await patch_status(api, metadata, {"conditions": [condition]})
    try:
        await api.delete("pods", name, namespace, uid=uid)
    except ApiError as error:
        if not (error.is_not_found or error.is_conflict):
            raise
