"""What every node has, what is taken, and who took it: kept in O(change), never recounted.

Invariants, which tests check against a recount after every operation: a node's ``used`` is the sum
of the requests of the pods on it; a pod is on one node at most; every change of a node is in
``changes``, so that a cache built from the inventory knows what to look at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock_cluster.requests import Amounts, parse_amounts, pod_requests

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod as far as its node's accounts go."""

    uid: str
    namespace: str
    name: str
    requests: Mapping[str, int]
    priority: int
    start_time: str
    """RFC 3339; sorts as text. Empty until the kubelet has taken the pod."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: Json) -> Occupant:
        metadata = pod["metadata"]
        return cls(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            requests=pod_requests(pod),
            priority=pod["spec"].get("priority") or 0,
            start_time=(pod.get("status") or {}).get("startTime") or "",
            labels=metadata.get("labels") or {},
        )


@dataclass(slots=True)
class NodeAccount:
    """One node: the object, its allocatable amounts, its pods and their sum."""

    name: str
    node: Json
    allocatable: Amounts
    used: Amounts = field(default_factory=dict)
    occupants: dict[str, Occupant] = field(default_factory=dict)
    nominated: dict[str, Occupant] = field(default_factory=dict)
    """Pods for which others were removed from here; room is kept for them."""

    def free(self, resource: str) -> int:
        """May be negative on a node that shrank under its pods."""
        return self.allocatable.get(resource, 0) - self.used.get(resource, 0)


class Inventory:
    """All nodes and the pods bound to them."""

    def __init__(self) -> None:
        self._accounts: dict[str, NodeAccount] = {}
        self._places: dict[str, str] = {}
        self._orphans: dict[str, dict[str, Occupant]] = {}
        self._nominations: dict[str, str] = {}
        self.changes: list[str] = []
        """Names of changed nodes, oldest first; read from a position on, see ``since``."""
        self._dropped_changes = 0

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[NodeAccount]:
        return iter(self._accounts.values())

    def get(self, name: str) -> NodeAccount | None:
        return self._accounts.get(name)

    def place_of(self, uid: str) -> str | None:
        """The node that the pod with this uid is on."""
        return self._places.get(uid)

    @property
    def position(self) -> int:
        """How many changes there have been."""
        return self._dropped_changes + len(self.changes)

    def since(self, position: int) -> list[str] | None:
        """The changes after ``position``, or None when they are no longer all known."""
        if position < self._dropped_changes:
            return None
        return self.changes[position - self._dropped_changes :]

    def put_node(self, node: Json) -> None:
        """Add a node or take over its new spec, labels, taints and allocatable amounts."""
        name = node["metadata"]["name"]
        status = node.get("status") or {}
        allocatable = parse_amounts(status.get("allocatable") or status.get("capacity"))
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = NodeAccount(name, node, allocatable)
            for occupant in self._orphans.pop(name, {}).values():
                self._enter(account, occupant)
        else:
            account.node = node
            account.allocatable = allocatable
        self._changed(name)

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods are remembered in case it comes back."""
        account = self._accounts.pop(name, None)
        if account is None:
            return
        for uid in account.nominated:
            self._nominations.pop(uid, None)
        if account.occupants:
            self._orphans[name] = dict(account.occupants)
        self._changed(name)

    def put_pod(self, occupant: Occupant, node_name: str) -> None:
        """Enter a bound pod, or correct what it asks for after a resize."""
        known = self._places.get(occupant.uid)
        if known == node_name:
            account = self._accounts.get(node_name)
            if account is not None:
                before = account.occupants[occupant.uid]
                if before.requests == occupant.requests and before.priority == occupant.priority:
                    account.occupants[occupant.uid] = occupant
                    return
                self._leave(account, occupant.uid)
                self._enter(account, occupant)
                self._changed(node_name)
            else:
                self._orphans[node_name][occupant.uid] = occupant
            return
        if known is not None:
            self.remove_pod(occupant.uid)
        self._places[occupant.uid] = node_name
        self.withdraw_nomination(occupant.uid)
        account = self._accounts.get(node_name)
        if account is None:
            self._orphans.setdefault(node_name, {})[occupant.uid] = occupant
            return
        self._enter(account, occupant)
        self._changed(node_name)

    def remove_pod(self, uid: str) -> None:
        """Give back what a pod held; nothing happens for a pod that is not here."""
        self.withdraw_nomination(uid)
        name = self._places.pop(uid, None)
        if name is None:
            return
        account = self._accounts.get(name)
        if account is None:
            orphans = self._orphans[name]
            del orphans[uid]
            if not orphans:
                del self._orphans[name]
            return
        self._leave(account, uid)
        self._changed(name)

    def nominate(self, occupant: Occupant, node_name: str) -> None:
        """Keep room on a node for a pod whose victims are on their way out."""
        self.withdraw_nomination(occupant.uid)
        account = self._accounts.get(node_name)
        if account is None:
            return
        account.nominated[occupant.uid] = occupant
        self._nominations[occupant.uid] = node_name
        self._changed(node_name)

    def withdraw_nomination(self, uid: str) -> None:
        name = self._nominations.pop(uid, None)
        account = self._accounts.get(name) if name is not None else None
        if account is not None:
            del account.nominated[uid]
            self._changed(account.name)

    def nomination_of(self, uid: str) -> str | None:
        """The node on which room is kept for the pod with this uid."""
        return self._nominations.get(uid)

    def _enter(self, account: NodeAccount, occupant: Occupant) -> None:
        account.occupants[occupant.uid] = occupant
        for resource, amount in occupant.requests.items():
            account.used[resource] = account.used.get(resource, 0) + amount

    def _leave(self, account: NodeAccount, uid: str) -> None:
        for resource, amount in account.occupants.pop(uid).requests.items():
            account.used[resource] -= amount

    def _changed(self, name: str) -> None:
        self.changes.append(name)
        # Bounded: a reader further behind than this starts over, which costs one pass over all
        # nodes, no more than reading the changes would.
        longest = 2 * len(self._accounts) + 1024
        if len(self.changes) > longest:
            drop = len(self.changes) - longest // 2
            del self.changes[:drop]
            self._dropped_changes += drop
