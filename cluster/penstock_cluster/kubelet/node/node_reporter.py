"""What the API server is told of nodes, and what it says of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from penstock_cluster.kubelet.network.addresses import LOOPBACK
from penstock_cluster.kubelet.node.node_object import Node
from penstock_cluster.nodes import NodeDeclaration, ready_conditions
from penstock_cluster.registry import Api, ApiError, Engine
from penstock_cluster.registry.model.errors import Json

LEASE_NAMESPACE: Final = "kube-node-lease"


class NodeReporter:
    """Registers nodes, renews the Leases of those that are heard, and follows their objects."""

    def __init__(
        self, engine: Engine, api: Api, nodes: Mapping[str, Node], heartbeat_seconds: float
    ) -> None:
        """``nodes``: those of the kubelet, by name, as they come and go."""
        self._engine = engine
        self._api = api
        self._nodes = nodes
        self._heartbeat_seconds = heartbeat_seconds

    async def register(self, declaration: NodeDeclaration) -> Json:
        """Create a Node, or make the one that is there Ready again; what is stored."""
        wanted = declaration.as_object(LOOPBACK, self._engine.timestamp())
        try:
            return await self._api.create("nodes", wanted)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            return await self._api.patch(
                "nodes",
                declaration.name,
                {"status": wanted["status"]},
                kind="strategic",
                subresource="status",
            )

    async def post_ready(self, node: Node) -> None:
        """The node is heard again."""
        conditions = ready_conditions(self._engine.timestamp())
        with contextlib.suppress(ApiError):  # the Node object was deleted
            await self._api.patch(
                "nodes",
                node.name,
                {"status": {"conditions": conditions}},
                kind="strategic",
                subresource="status",
            )

    async def heartbeat(self) -> None:
        """Renew the Leases of all nodes that are not lost, for ever."""
        while True:
            for node in list(self._nodes.values()):
                if not node.is_silent:
                    await self._renew_lease(node)
            await asyncio.sleep(self._heartbeat_seconds)

    async def follow(self) -> None:
        """Take over what is written to the Node objects, for ever."""
        while True:
            async with self._api.watch("nodes") as events:
                async for event in events:
                    if event.type == "ERROR":
                        break
                    node = self._nodes.get(event.object["metadata"].get("name", ""))
                    if node is not None and event.type in {"ADDED", "MODIFIED"}:
                        node.put(event.object)

    async def _renew_lease(self, node: Node) -> None:
        renewed = self._engine.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": node.name,
            "leaseDurationSeconds": int(4 * self._heartbeat_seconds),
            "renewTime": renewed,
        }
        leases = "leases.coordination.k8s.io"
        try:
            await self._api.patch(leases, node.name, {"spec": spec}, LEASE_NAMESPACE)
        except ApiError as error:
            if not error.is_not_found:
                raise
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": node.name},
                "spec": spec,
            }
            await self._api.create(leases, lease, LEASE_NAMESPACE)
