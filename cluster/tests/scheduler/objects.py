"""Pods and nodes as the API server stores them, cut down to what the binder reads."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def node(
    name: str = "n1",
    cpu: str = "4",
    memory: str = "8Gi",
    pods: int = 110,
    labels: dict[str, str] | None = None,
    taints: list[Json] | None = None,
    unschedulable: bool = False,
    **extended: int,
) -> Json:
    spec: Json = {}
    if taints:
        spec["taints"] = taints
    if unschedulable:
        spec["unschedulable"] = True
    allocatable = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    allocatable |= {f"example.com/{kind}": str(count) for kind, count in extended.items()}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(
    name: str = "p1",
    cpu: str | None = None,
    memory: str | None = None,
    priority: int = 0,
    start_time: str = "",
    **spec: Any,
) -> Json:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": containers, "priority": priority, **spec},
        "status": {"startTime": start_time} if start_time else {},
    }
