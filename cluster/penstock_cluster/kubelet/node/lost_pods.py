"""Pods that nobody runs any more: those of an earlier kubelet, and those that have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from penstock_cluster.kubelet.state.status import Terminated
from penstock_cluster.registry import Api, ApiError, thaw

Json = Mapping[str, Any]


async def mark_lost(api: Api, pod: Json, now: str) -> None:
    """Say that a pod has Failed because its processes ended with an earlier kubelet."""
    metadata = pod["metadata"]
    change = lost_status(pod, now)
    with contextlib.suppress(ApiError):  # gone meanwhile
        lost = await api.patch(
            "pods",
            metadata["name"],
            change,
            metadata["namespace"],
            kind="strategic",
            subresource="status",
        )
        await let_go(api, lost)


async def let_go(api: Api, pod: Json) -> None:
    """Delete a pod that has ended and is to be deleted."""
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        return
    with contextlib.suppress(ApiError):  # gone already
        await api.delete(
            "pods",
            metadata["name"],
            metadata["namespace"],
            grace_period_seconds=0,
            uid=metadata["uid"],
        )


def lost_status(pod: Json, now: str) -> dict[str, Any]:
    """The status of a pod whose processes ended while nobody watched, as a strategic patch."""
    status = thaw(dict(pod.get("status") or {}))
    terminated = Terminated(
        exit_code=137,
        reason="ContainerStatusUnknown",
        started_at=now,
        finished_at=now,
        message="The container could not be located when the pod was terminated",
    )
    change: dict[str, Any] = {
        "phase": "Failed",
        "reason": "NodeLost",
        "message": "The pod's processes ended while its node was away",
        "conditions": [
            {"type": kind, "status": "False", "reason": "PodFailed", "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady")
        ],
    }
    for kind in ("initContainerStatuses", "containerStatuses"):
        if kind in status:
            change[kind] = [_lost_container(each, terminated) for each in status[kind]]
    return {"status": change}


def _lost_container(status: dict[str, Any], terminated: Terminated) -> dict[str, Any]:
    if "terminated" in status["state"]:
        return status
    return {**status, "ready": False, "started": False, "state": terminated.as_json()}
