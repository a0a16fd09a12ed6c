"""The cluster as the scheduler knows it: columns kept up to date by events, in O(change).

free = allocatable - what the non-terminal pods on the node hold - our own unbound reservations

A reservation stands for a pod that was placed and is not yet seen on its node. It goes when the pod
is seen on any node, ends, or is deleted, and in any case `RESERVATION_SECONDS` after it was made.

Guarantees, checked by a test against a model:
- after any sequence of events, in any order, the columns equal those of a fresh snapshot made from
  the objects that are there;
- a pod on a node that is not known yet counts as soon as the node comes;
- an event that says nothing new changes nothing.

Free resources may be below zero: a cluster that others over-commit is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.scheduler.node_table import Flags, NodeTable, Rows
from penstock.scheduler.objects import Amounts, Node, Pod
from penstock.scheduler.placement.engine import Placement, Placer, Preference
from penstock.scheduler.placement.holdings import Holdings, Reservation
from penstock.scheduler.placement.node_eligibility import NodeEligibility
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Constraints, Request

RESERVATION_SECONDS: Final = 30.0
"""How long a placement is held for a pod that does not show up on its node."""


class Snapshot:
    """Nodes, pods and reservations, and the columns that follow from them."""

    def __init__(self) -> None:
        self.columns = NodeTable()
        self._nodes: dict[str, Node] = {}
        self.eligibility = NodeEligibility(self.columns)
        """To be asked; what changes in it is told to the snapshot."""
        self._holdings = Holdings()

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._nodes

    @property
    def bound(self) -> Mapping[str, str]:
        """The node of every pod that holds room, by uid."""
        return self._holdings.bound

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """The reservations by the uid of their pod."""
        return self._holdings.reservations

    def held(self, node: str) -> tuple[Amounts, int]:
        """What bound pods hold of a node, without reservations, and how many they are."""
        return self._holdings.of_pods(node)

    def upsert_node(self, node: Node) -> None:
        """A node was added or changed."""
        known = self._nodes.get(node.name)
        if known == node:
            return
        if known is not None and known.allocatable != node.allocatable:
            self._drop_row(node.name)
            known = None
        self._nodes[node.name] = node
        if known is None:
            kinds = [kind for kind, count in node.allocatable.accelerators for _ in range(count)]
            row = self.columns.add(
                node.name,
                milli_cpu=node.allocatable.milli_cpu,
                memory_bytes=node.allocatable.memory_bytes,
                devices=kinds,
                schedulable=not node.cordoned,
            )
            self._refresh(node.name)
        else:
            row = self.columns.row(node.name)
            self.columns.set_schedulable(row, not node.cordoned)
            self._refresh(node.name)
        self.eligibility.set_traits(row, node.traits, tainted=bool(node.taints))

    def remove_node(self, name: str) -> None:
        """A node is gone; what is known of its pods stays until they are gone, too."""
        if self._nodes.pop(name, None) is not None:
            self._drop_row(name)

    def _drop_row(self, name: str) -> None:
        row = self.columns.row(name)
        self.eligibility.drop(row)
        self.columns.remove(name)

    def upsert_pod(self, pod: Pod) -> None:
        """A pod was added or changed: bound, resized, ended."""
        before = self._holdings.bound.get(pod.uid)
        node = pod.node if pod.holds_resources else None
        if before is not None and before != node:
            self._forget_pod(pod.uid)
        if node is not None and self._holdings.put_pod(pod.uid, node, pod.held):
            self._refresh(node)
        if pod.node is not None or pod.terminal:
            self.release(pod.uid)

    def remove_pod(self, uid: str) -> None:
        """A pod was deleted."""
        self._forget_pod(uid)
        self.release(uid)

    def _forget_pod(self, uid: str) -> None:
        node = self._holdings.remove_pod(uid)
        if node is not None:
            self._refresh(node)

    def reserve(self, reservation: Reservation) -> None:
        """Hold room for a placed pod; replaces what was held for it. A bound pod needs none."""
        if reservation.uid in self._holdings.bound:
            return
        self.release(reservation.uid)
        self._holdings.reserve(reservation)
        self._refresh(reservation.node)

    def release(self, uid: str) -> None:
        """Let go of what was held for a pod, if anything was."""
        node = self._holdings.release(uid)
        if node is not None:
            self._refresh(node)

    def shun(self, name: str, until_seconds: float) -> None:
        """Place nothing on a node for a while: it did not take what was placed there."""
        self.eligibility.shun(name, until_seconds)

    def expire(self, now_seconds: float) -> list[Reservation]:
        """Let go of the reservations whose time is over, and say which."""
        self.eligibility.expire(now_seconds)
        held = self._holdings.reservations.values()
        over = [one for one in held if one.expires_seconds <= now_seconds]
        for reservation in over:
            self.release(reservation.uid)
        return over

    def _refresh(self, name: str) -> None:
        """Write a node's free resources from what its pods hold: O(pods of that node)."""
        node = self._nodes.get(name)
        if node is None:
            return
        held, count = self._holdings.of(name)
        used = dict(held.accelerators)
        free: list[int] = []
        for kind, number in node.allocatable.accelerators:
            idle = max(0, number - used.get(kind, 0))
            free += [WHOLE_DEVICE_MILLI] * idle + [0] * (number - idle)
        row = self.columns.row(name)
        self.eligibility.set_full(row, node.most_pods is not None and count >= node.most_pods)
        self.columns.set_free(
            row,
            milli_cpu=node.allocatable.milli_cpu - held.milli_cpu,
            memory_bytes=node.allocatable.memory_bytes - held.memory_bytes,
            device_free=free,
        )

    def eligible(self, constraints: Constraints, rows: Rows) -> Flags:
        """Which rows a pod with these constraints may be bound to."""
        return self.eligibility.eligible(constraints, rows)

    def place(
        self,
        placer: Placer,
        uid: str,
        request: Request,
        now_seconds: float,
        preference: Preference | None = None,
        *,
        with_runner_up: bool = False,
    ) -> Placement | None:
        """Place a pod as a placer over these columns says, and reserve its room.

        None where it fits nowhere now.

        The request is not counted as asked for: a pod that fits nowhere asks again and again.
        """
        placement = placer.look(request, preference, with_runner_up=with_runner_up)
        if placement is not None:
            kinds = request.accelerator_kinds or self._kinds_of(placement)
            accelerators = ((kinds[0], request.accelerators),) if request.accelerators else ()
            held = Amounts(request.milli_cpu, request.memory_bytes, accelerators)
            expires = now_seconds + RESERVATION_SECONDS
            self.reserve(Reservation(uid, placement.node, held, expires))
        return placement

    def _kinds_of(self, placement: Placement) -> tuple[str, ...]:
        codes = self.columns.device_kind[placement.row, list(placement.devices)].tolist()
        return tuple(self.columns.kinds.name(code) for code in codes[:1])
