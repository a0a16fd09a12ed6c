"""Pods without processes, for load tests: Running and Ready at once, gone as soon as deleted.

One status write per pod and no task, folder or process, so that ten thousand cost little. They end
when :meth:`NoopPods.finish` says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from penstock_cluster.kubelet.network.addresses import AddressBlock
from penstock_cluster.kubelet.node.node_object import Node
from penstock_cluster.kubelet.state.status import (
    CONTAINER_ID_SCHEME,
    Active,
    ContainerRecord,
    PodRecord,
    Terminated,
    status_patch,
)
from penstock_cluster.registry import Api, ApiError, Engine
from penstock_cluster.requests import is_finished

Json = Mapping[str, Any]


class NoopPods:
    """Answers for the pods of all nodes."""

    def __init__(self, engine: Engine, api: Api, addresses: AddressBlock) -> None:
        self._engine = engine
        self._api = api
        self._addresses = addresses

    async def sync(self, node: Node, pod: Json) -> None:
        """Bring one pod to where it should be."""
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            self.forget(pod)
            with contextlib.suppress(ApiError):
                await self._api.delete(
                    "pods",
                    metadata["name"],
                    metadata["namespace"],
                    grace_period_seconds=0,
                    uid=metadata["uid"],
                )
        elif not is_finished(pod) and not (pod.get("status") or {}).get("startTime"):
            await self._write(pod, self._record(node, pod))

    def forget(self, pod: Json) -> None:
        """Give back the pod's address."""
        self._addresses.release(pod["metadata"]["uid"])

    async def finish(self, pod: Json, exit_code: int = 0, reason: str = "") -> None:
        """End all containers of a pod: Succeeded with exit code 0, else Failed."""
        now = self._engine.timestamp()
        status = pod["status"]
        record = PodRecord(
            pod_ip=status["podIP"],
            host_ip=status["hostIP"],
            start_time=status["startTime"],
            init_containers=[],
            containers=[
                ContainerRecord(
                    each,
                    state=Terminated(
                        exit_code,
                        reason or ("Error" if exit_code else "Completed"),
                        status["startTime"],
                        now,
                        signal=max(0, exit_code - 128),
                    ),
                )
                for each in pod["spec"]["containers"]
            ],
            is_set_up=True,
            is_terminating=True,
        )
        self.forget(pod)
        await self._write(pod, record)

    def _record(self, node: Node, pod: Json) -> PodRecord:
        now = self._engine.timestamp()
        uid = pod["metadata"]["uid"]
        return PodRecord(
            pod_ip=self._addresses.assign(uid),
            host_ip=node.address,
            start_time=now,
            init_containers=[],
            containers=[
                ContainerRecord(
                    each,
                    state=Active(now),
                    container_id=f"{CONTAINER_ID_SCHEME}{uid}",
                    is_started=True,
                    is_ready=True,
                )
                for each in pod["spec"]["containers"]
            ],
            is_set_up=True,
        )

    async def _write(self, pod: Json, record: PodRecord) -> None:
        metadata = pod["metadata"]
        change = {"status": status_patch(pod, record, self._engine.timestamp)}
        with contextlib.suppress(ApiError):  # gone meanwhile
            await self._api.patch(
                "pods",
                metadata["name"],
                change,
                metadata["namespace"],
                kind="strategic",
                subresource="status",
            )
