"""What the API server is told of a pod, unless its node is lost or the pod is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from penstock_cluster.kubelet.container.context import PodContext
from penstock_cluster.kubelet.node.node_object import Node
from penstock_cluster.kubelet.state.status import phase, status_patch
from penstock_cluster.registry import ApiError


class PodReporter:
    """Writes the status of one pod, and lets its object go in the end."""

    def __init__(self, context: PodContext, node: Node, uid: str) -> None:
        self._context = context
        self._node = node
        self._uid = uid
        self.is_gone = False
        """The object is gone from the API server: nothing is written any more."""

    @property
    def phase(self) -> str:
        """The pod's phase, by its containers."""
        return phase(
            self._context.pod["spec"].get("restartPolicy") or "Always", self._context.record
        )

    async def report(self, condition: Mapping[str, str] | None = None) -> None:
        """Write the status when it differs from what is stored; a lost node writes nothing."""
        if self.is_gone or self._node.is_silent:
            return
        if self.phase in {"Succeeded", "Failed"}:
            # Before anybody is told: the binder may fill the room at once.
            self._node.discharge(self._uid)
        services, metadata = self._context.services, self._context.pod["metadata"]
        try:
            stored = await services.api.get("pods", metadata["name"], metadata["namespace"])
            if stored["metadata"]["uid"] != self._uid:
                self.is_gone = True
                return
            status = status_patch(stored, self._context.record, services.engine.timestamp)
            if condition is not None:
                now = {"lastTransitionTime": services.engine.timestamp()}
                status["conditions"].append({**condition, **now})
            await services.api.patch(
                "pods",
                metadata["name"],
                {"status": status},
                metadata["namespace"],
                kind="strategic",
                subresource="status",
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
            self.is_gone = True

    async def finalize(self) -> None:
        """Everything has ended: let the object go."""
        self._node.discharge(self._uid)
        if self.is_gone or self._node.is_silent:
            return
        metadata = self._context.pod["metadata"]
        with contextlib.suppress(ApiError):  # gone already, or another pod of that name
            await self._context.services.api.delete(
                "pods",
                metadata["name"],
                metadata["namespace"],
                grace_period_seconds=0,
                uid=self._uid,
            )
