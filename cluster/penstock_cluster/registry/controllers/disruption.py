"""Disruption budgets: keeping their status true to the pods they cover."""

from __future__ import annotations

import math
from typing import Any

from penstock_cluster.registry.model.documents import read
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.selectors import LabelSelector
from penstock_cluster.registry.objects.store import Change, Version
from penstock_cluster.registry.objects.workqueue import WorkQueue
from penstock_cluster.registry.operations.storage import Storage

BUDGETS = "poddisruptionbudgets.policy"


def budget_status(budget: Json, pods: list[Json], now: str) -> Json:
    """The status of a budget over the pods it selects."""
    healthy = sum(_is_healthy(pod) for pod in pods)
    expected = len(pods)
    spec = budget.get("spec") or {}
    if spec.get("maxUnavailable") is not None:
        desired = max(0, expected - _scaled(spec["maxUnavailable"], expected))
    elif spec.get("minAvailable") is not None:
        desired = _scaled(spec["minAvailable"], expected)
    else:
        desired = 0
    allowed = max(0, healthy - desired)
    before = {item["type"]: item for item in read(budget, ("status", "conditions")) or ()}
    word = "True" if allowed > 0 else "False"
    old = before.get("DisruptionAllowed")
    since = old["lastTransitionTime"] if old and old["status"] == word else now
    generation = budget["metadata"].get("generation", 1)
    condition = {
        "type": "DisruptionAllowed",
        "status": word,
        "observedGeneration": generation,
        "lastTransitionTime": since,
        "message": "",
        "reason": "SufficientPods" if allowed > 0 else "InsufficientPods",
    }
    return {
        "observedGeneration": generation,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": [condition],
    }


def _scaled(amount: Any, total: int) -> int:
    if type(amount) is int:
        return amount
    return math.ceil(int(str(amount).rstrip("%")) * total / 100)


def _is_healthy(pod: Json) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    return any(
        item.get("type") == "Ready" and item.get("status") == "True"
        for item in read(pod, ("status", "conditions")) or ()
    )


class DisruptionController:
    """Recomputes a budget when it or a pod in its namespace changes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._queue: WorkQueue[str] = WorkQueue("disruption controller", self._look_at)

    def start(self) -> None:
        self._queue.start()
        store = self._storage.store
        for version in store.table(BUDGETS).items.values():
            self._queue.add(version.key[0])
        store.table(BUDGETS).listeners.append(self._on_change)
        store.table("pods").listeners.append(self._on_change)

    def stop(self) -> None:
        self._queue.stop()

    def _on_change(self, change: Change) -> None:
        if self._storage.store.table(BUDGETS).keys:
            self._queue.add(change.after.key[0])

    def _look_at(self, namespace: str) -> None:
        for version in list(self._storage.store.table(BUDGETS).in_namespace(namespace)):
            self._reconcile(version)

    def _reconcile(self, version: Version) -> None:
        store = self._storage.store
        budget = version.object
        selector = (budget.get("spec") or {}).get("selector")
        pods: list[Json] = []
        if selector is not None:
            labels = LabelSelector.of(selector)
            pods = [
                item.object
                for item in store.table("pods").in_namespace(version.key[0])
                if labels.matches(item.object["metadata"].get("labels"))
                and read(item.object, ("status", "phase")) not in ("Succeeded", "Failed")
            ]
        status = budget_status(budget, pods, self._storage.timestamp())
        if status != budget.get("status"):
            document = {**budget, "metadata": dict(budget["metadata"]), "status": status}
            store.put(store.table(BUDGETS), version.key, document, version.managed)
