"""The best node for a pod, without looking at every node for every pod.

Pods that ask for the same are one *shape*: what a node answers to one of them it answers to all.
Per shape there is a heap of the nodes that fit, best first. A binding changes one node, so only
that node is asked again, by each shape when it is next used; entries that are no longer true are
recognised by their version and skipped. The result is that of a full scan, which a test checks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

import orjson

from penstock_cluster.scheduler.nodes.fit import Refusal, may_use, refusal, room_refusal
from penstock_cluster.scheduler.nodes.inventory import Inventory, NodeAccount, Occupant
from penstock_cluster.scheduler.nodes.selectors import named_nodes
from penstock_cluster.scheduler.score import score

Json = Mapping[str, Any]

_MOST_SHAPES = 128
_Entry = tuple[int, str, int]


class _Shape:
    """The nodes that fit pods of one shape, best first."""

    def __init__(self, occupant: Occupant, spec: Json) -> None:
        self.occupant = occupant
        self.spec = spec
        self.position = -1
        self.heap: list[_Entry] = []
        self.versions: dict[str, int] = {}
        self.count = 0

    def best(self, inventory: Inventory) -> str | None:
        self._refresh(inventory)
        while self.heap:
            _, name, version = self.heap[0]
            if self.versions.get(name) == version:
                return name
            heappop(self.heap)
        return None

    def _refresh(self, inventory: Inventory) -> None:
        changed = inventory.since(self.position) if self.position >= 0 else None
        if changed is None or len(self.heap) > 4 * len(inventory) + 64:
            self.versions.clear()
            self.heap = [
                entry for account in inventory if (entry := self._entry(account)) is not None
            ]
            heapify(self.heap)
        else:
            for name in dict.fromkeys(changed):
                self.versions.pop(name, None)
                account = inventory.get(name)
                entry = self._entry(account) if account is not None else None
                if entry is not None:
                    heappush(self.heap, entry)
        self.position = inventory.position

    def _entry(self, account: NodeAccount) -> _Entry | None:
        if refusal_of(self.spec, self.occupant, account) is not None:
            return None
        self.count += 1
        self.versions[account.name] = self.count
        return (-score(self.occupant.requests, account), account.name, self.count)


def refusal_of(spec: Json, occupant: Occupant, account: NodeAccount) -> Refusal | None:
    """None when the pod fits; room is asked first, being the cheaper question."""
    return room_refusal(occupant, account) or may_use(spec, account.node)


class Placement:
    """Chooses nodes from an inventory; remembers answers by shape, boundedly."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._shapes: OrderedDict[bytes, _Shape] = OrderedDict()

    def choose(self, pod: Json, occupant: Occupant) -> str | None:
        """The name of the best node that fits, ties by name; None when there is none."""
        nominated = self._inventory.nomination_of(occupant.uid)
        if nominated is not None:
            account = self._inventory.get(nominated)
            if account is not None and refusal(pod, occupant, account) is None:
                return nominated
        named = named_nodes(pod["spec"])
        if named is not None:
            return self._best_of(named, pod, occupant)
        key = shape_key(pod["spec"], occupant)
        shape = self._shapes.get(key)
        if shape is None:
            # The shape stands for many pods: it must not claim the nomination of this one.
            anonymous = Occupant("", "", "", occupant.requests, occupant.priority, "")
            shape = self._shapes[key] = _Shape(anonymous, pod["spec"])
            if len(self._shapes) > _MOST_SHAPES:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(key)
        return shape.best(self._inventory)

    def _best_of(self, names: Iterable[str], pod: Json, occupant: Occupant) -> str | None:
        accounts = [account for name in names if (account := self._inventory.get(name)) is not None]
        fitting = [
            (-score(occupant.requests, account), account.name)
            for account in accounts
            if refusal(pod, occupant, account) is None
        ]
        return min(fitting)[1] if fitting else None

    def refusals(self, pod: Json, occupant: Occupant) -> list[Refusal]:
        """Why each node does not take the pod, in the order of the inventory."""
        found = (refusal(pod, occupant, account) for account in self._inventory)
        return [reason for reason in found if reason is not None]


def shape_key(spec: Json, occupant: Occupant) -> bytes:
    """Equal for two pods exactly when every node answers both of them alike."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    return orjson.dumps(
        [
            occupant.requests,
            occupant.priority,
            spec.get("nodeName"),
            spec.get("nodeSelector"),
            affinity,
            spec.get("tolerations"),
        ],
        option=orjson.OPT_SORT_KEYS,
    )
