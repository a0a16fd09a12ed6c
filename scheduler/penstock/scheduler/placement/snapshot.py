"""The cluster as the scheduler knows it: columns kept up to date by events, in O(change).

free = allocatable - what the non-terminal pods on the node hold - our own unbound reservations

A reservation stands for a pod that was placed and is not yet seen on its node. It goes when the pod
is seen on any node, ends, or is deleted, and in any case `RESERVATION_SECONDS` after it was made.

Guarantees, checked by a test against a model:
- after any sequence of events, in any order, the columns equal those of a fresh snapshot made from
  the objects that are there (`relist`);
- a pod on a node that is not known yet counts as soon as the node comes;
- an event that says nothing new changes nothing.

A node that has as many pods as its kubelet takes is eligible for no more, whatever it has free; so
is one that is shunned, for a while, because it did not take what was placed on it.

Free resources may be below zero: a cluster that others over-commit is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.scheduler.eligibility import NodeTraits, allows
from penstock.scheduler.node_table import Flags, NodeTable, Rows
from penstock.scheduler.objects import NOTHING, Amounts, Node, Pod
from penstock.scheduler.placement.engine import Placement, Placer, Preference
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.request import ANYWHERE, WHOLE_DEVICE_MILLI, Constraints, Request

RESERVATION_SECONDS: Final = 30.0
"""How long a placement is held for a pod that does not show up on its node."""


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


class Snapshot:
    """Nodes, pods and reservations, and the columns that follow from them."""

    def __init__(self) -> None:
        self.columns = NodeTable()
        self._nodes: dict[str, Node] = {}
        self._traits: dict[int, NodeTraits] = {}
        self._tainted: set[int] = set()
        self._full: set[int] = set()
        self._shunned: dict[str, float] = {}
        self._pod_node: dict[str, str] = {}
        self._usage: dict[str, _Usage] = {}
        self._reservations: dict[str, Reservation] = {}

    @classmethod
    def relist(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        reservations: Iterable[Reservation] = (),
    ) -> Snapshot:
        """A snapshot from complete lists."""
        snapshot = cls()
        for node in nodes:
            snapshot.upsert_node(node)
        for pod in pods:
            snapshot.upsert_pod(pod)
        for reservation in reservations:
            snapshot.reserve(reservation)
        return snapshot

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._nodes

    @property
    def bound(self) -> Mapping[str, str]:
        """The node of every pod that holds room, by uid."""
        return self._pod_node

    @property
    def shunned(self) -> Mapping[str, float]:
        """The nodes on which nothing is placed for a while, and until when."""
        return self._shunned

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """The reservations by the uid of their pod."""
        return self._reservations

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
        self._traits[row] = node.traits
        (self._tainted.add if node.taints else self._tainted.discard)(row)

    def remove_node(self, name: str) -> None:
        """A node is gone; what is known of its pods stays until they are gone, too."""
        if self._nodes.pop(name, None) is not None:
            self._drop_row(name)

    def _drop_row(self, name: str) -> None:
        row = self.columns.row(name)
        self._traits.pop(row, None)
        self._tainted.discard(row)
        self._full.discard(row)
        self.columns.remove(name)

    def upsert_pod(self, pod: Pod) -> None:
        """A pod was added or changed: bound, resized, ended."""
        before = self._pod_node.get(pod.uid)
        node = pod.node if pod.holds_resources else None
        if before is not None and before != node:
            self._forget_pod(pod.uid, before)
        if node is not None:
            usage = self._usage.setdefault(node, _Usage())
            if usage.pods.get(pod.uid) != pod.held:
                usage.pods[pod.uid] = pod.held
                self._pod_node[pod.uid] = node
                self._refresh(node)
        if pod.node is not None or pod.terminal:
            self.release(pod.uid)

    def remove_pod(self, uid: str) -> None:
        """A pod was deleted."""
        node = self._pod_node.get(uid)
        if node is not None:
            self._forget_pod(uid, node)
        self.release(uid)

    def _forget_pod(self, uid: str, node: str) -> None:
        del self._pod_node[uid]
        del self._usage[node].pods[uid]
        self._refresh(node)

    def reserve(self, reservation: Reservation) -> None:
        """Hold room for a placed pod; replaces what was held for it. A bound pod needs none."""
        if reservation.uid in self._pod_node:
            return
        self.release(reservation.uid)
        self._reservations[reservation.uid] = reservation
        usage = self._usage.setdefault(reservation.node, _Usage())
        usage.reservations[reservation.uid] = reservation.held
        self._refresh(reservation.node)

    def release(self, uid: str) -> None:
        """Let go of what was held for a pod, if anything was."""
        reservation = self._reservations.pop(uid, None)
        if reservation is not None:
            del self._usage[reservation.node].reservations[uid]
            self._refresh(reservation.node)

    def shun(self, name: str, until_seconds: float) -> None:
        """Place nothing on a node for a while: it did not take what was placed there."""
        self._shunned[name] = until_seconds
        if name in self.columns:
            self.columns.touch(self.columns.row(name))

    def expire(self, now_seconds: float) -> list[Reservation]:
        """Let go of the reservations whose time is over, and say which."""
        for name in [name for name, until in self._shunned.items() if until <= now_seconds]:
            del self._shunned[name]
            if name in self.columns:
                self.columns.touch(self.columns.row(name))
        over = [held for held in self._reservations.values() if held.expires_seconds <= now_seconds]
        for reservation in over:
            self.release(reservation.uid)
        return over

    def _refresh(self, name: str) -> None:
        """Write a node's free resources from what its pods hold: O(pods of that node)."""
        usage = self._usage.get(name)
        if usage is not None and not usage.pods and not usage.reservations:
            del self._usage[name]
            usage = None
        node = self._nodes.get(name)
        if node is None:
            return
        held = NOTHING
        if usage is not None:
            for amounts in (*usage.pods.values(), *usage.reservations.values()):
                held = held.plus(amounts)
        used = dict(held.accelerators)
        free: list[int] = []
        for kind, count in node.allocatable.accelerators:
            idle = max(0, count - used.get(kind, 0))
            free += [WHOLE_DEVICE_MILLI] * idle + [0] * (count - idle)
        row = self.columns.row(name)
        count = 0 if usage is None else len(usage.pods) + len(usage.reservations)
        full = node.most_pods is not None and count >= node.most_pods
        (self._full.add if full else self._full.discard)(row)
        self.columns.set_free(
            row,
            milli_cpu=node.allocatable.milli_cpu - held.milli_cpu,
            memory_bytes=node.allocatable.memory_bytes - held.memory_bytes,
            device_free=free,
        )

    def eligible(self, constraints: Constraints, rows: Rows) -> Flags:
        """Which rows a pod with these constraints may be bound to."""
        closed = list(self._full)
        closed += [self.columns.row(name) for name in self._shunned if name in self.columns]
        if constraints == ANYWHERE:
            closed += self._tainted_hard() if self._tainted else ()
            if not closed:
                return np.ones(len(rows), dtype=np.bool_)
            return ~np.isin(rows, closed)
        traits = self._traits
        allowed = np.fromiter(
            (row in traits and allows(traits[row], constraints) for row in rows.tolist()),
            dtype=np.bool_,
            count=len(rows),
        )
        return allowed & ~np.isin(rows, closed) if closed else allowed

    def _tainted_hard(self) -> list[int]:
        return [row for row in self._tainted if not allows(self._traits[row], ANYWHERE)]

    def placer(self, policy: PlacementPolicy) -> Placer:
        """A placement engine over this snapshot that honours the nodes' traits."""
        return Placer(self.columns, policy, eligible=self.eligible)

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
        """Place a pod and reserve its room; None where it fits nowhere now.

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
