"""One node as its kubelet sees it: what it admits, and whether anybody hears from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_cluster.nodes import NodeDeclaration
from penstock_cluster.requests import Amounts, format_amount, parse_amounts
from penstock_cluster.scheduler.nodes.fit import AFFINITY_MISMATCH, shortages
from penstock_cluster.scheduler.nodes.inventory import Inventory, Occupant
from penstock_cluster.scheduler.nodes.selectors import matches_node_selection

Json = Mapping[str, Any]


class Node:
    """Admission control and connection state of one node."""

    def __init__(self, declaration: NodeDeclaration, address: str, node: Json) -> None:
        self.declaration = declaration
        self.address = address
        self.is_silent = False
        """The node is lost: it neither reports nor hears of changes."""
        self.percent: int | None = None
        """Its speed, where a fault makes it slow; None: that of this machine."""
        self._inventory = Inventory()
        self.put(node)

    @property
    def name(self) -> str:
        return self.declaration.name

    def put(self, node: Json) -> None:
        """Take over the newest Node object."""
        self.object = node
        self.allocatable: Amounts = parse_amounts(node["status"].get("allocatable"))
        self._inventory.put_node(node)

    def admit(self, pod: Json) -> tuple[str, str, str] | None:
        """Count the pod in, or say (phase, reason, message) of the kubelet's rejection.

        The binder never lets it come to that; who sets ``nodeName`` himself may.
        """
        occupant = Occupant.of(pod)
        account = self._inventory.get(self.name)
        assert account is not None
        short = shortages(occupant.requests, account)
        if short:
            resource = short[0]
            requested = format_amount(resource, occupant.requests[resource])
            used = format_amount(resource, account.used.get(resource, 0))
            capacity = format_amount(resource, account.allocatable.get(resource, 0))
            message = (
                f"Pod was rejected: Node didn't have enough resource: {resource}, "
                f"requested: {requested}, used: {used}, capacity: {capacity}"
            )
            return ("Failed", f"OutOf{resource}", message)
        if not matches_node_selection(pod["spec"], self.object):
            message = f"Pod was rejected: Predicate NodeAffinity failed: {AFFINITY_MISMATCH}"
            return ("Failed", "NodeAffinity", message)
        self._inventory.put_pod(occupant, self.name)
        return None

    def recount(self, pod: Json) -> None:
        """Count with the pod's resources as they are after a change in place."""
        occupant = Occupant.of(pod)
        if self._inventory.place_of(occupant.uid) is not None:
            self._inventory.put_pod(occupant, self.name)

    @property
    def used(self) -> Amounts:
        """What the pods that were admitted hold, without what is zero."""
        account = self._inventory.get(self.name)
        assert account is not None
        return {resource: amount for resource, amount in account.used.items() if amount}

    def discharge(self, pod_uid: str) -> None:
        """Give back what a pod held."""
        self._inventory.remove_pod(pod_uid)
