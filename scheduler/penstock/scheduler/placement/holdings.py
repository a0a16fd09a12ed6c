"""Who holds what of each node: pods that are bound, and reservations for those that are not yet.

Nodes need not be known: what a pod holds counts as soon as its node comes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.scheduler.objects import NOTHING, Amounts


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room held on a node for a pod that is not bound yet."""

    uid: str
    node: str
    held: Amounts
    expires_seconds: float


@dataclass(slots=True)
class _Usage:
    """Who holds what of one node, known or not yet known."""

    pods: dict[str, Amounts] = field(default_factory=dict)
    reservations: dict[str, Amounts] = field(default_factory=dict)


class Holdings:
    """Pods and reservations by node; every pod is on one node at most, and has one reservation."""

    def __init__(self) -> None:
        self._usage: dict[str, _Usage] = {}
        self._pod_node: dict[str, str] = {}
        self._reservations: dict[str, Reservation] = {}

    @property
    def bound(self) -> Mapping[str, str]:
        """The node of every pod that holds room, by uid."""
        return self._pod_node

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """The reservations by the uid of their pod."""
        return self._reservations

    def put_pod(self, uid: str, node: str, held: Amounts) -> bool:
        """A pod holds so much of a node; whether that is news. It must be on no other one."""
        usage = self._usage.setdefault(node, _Usage())
        if usage.pods.get(uid) == held:
            return False
        usage.pods[uid] = held
        self._pod_node[uid] = node
        return True

    def remove_pod(self, uid: str) -> str | None:
        """A pod holds nothing any more; the node that it was on."""
        node = self._pod_node.pop(uid, None)
        if node is not None:
            del self._usage[node].pods[uid]
            self._drop_if_empty(node)
        return node

    def reserve(self, reservation: Reservation) -> None:
        """Hold room for a pod that has no reservation."""
        self._reservations[reservation.uid] = reservation
        usage = self._usage.setdefault(reservation.node, _Usage())
        usage.reservations[reservation.uid] = reservation.held

    def release(self, uid: str) -> str | None:
        """Let go of what was held for a pod; the node on which it was, if anything was."""
        reservation = self._reservations.pop(uid, None)
        if reservation is None:
            return None
        del self._usage[reservation.node].reservations[uid]
        self._drop_if_empty(reservation.node)
        return reservation.node

    def _drop_if_empty(self, node: str) -> None:
        usage = self._usage[node]
        if not usage.pods and not usage.reservations:
            del self._usage[node]

    def of(self, node: str) -> tuple[Amounts, int]:
        """What is held of a node in all, and by how many: O(pods of that node)."""
        usage = self._usage.get(node)
        return _sum([] if usage is None else [*usage.pods.values(), *usage.reservations.values()])

    def of_pods(self, node: str) -> tuple[Amounts, int]:
        """What bound pods alone hold of a node, and how many they are."""
        usage = self._usage.get(node)
        return _sum([] if usage is None else usage.pods.values())


def _sum(holdings: Collection[Amounts]) -> tuple[Amounts, int]:
    held = NOTHING
    for amounts in holdings:
        held = held.plus(amounts)
    return held, len(holdings)
