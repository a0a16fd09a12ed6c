"""Nodes, pods and jobs as the API server shows them, small."""

from __future__ import annotations

from typing import Any

from penstock.crds import labels

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
GATE = {"name": labels.PLACEMENT_GATE}


def node(name: str, cpu: str = "8", gpus: int = 0, *, pods: int = 110, **spec: Any) -> Json:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": str(pods)}
    if gpus:
        allocatable[GPU] = str(gpus)
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(
    name: str,
    cpu: str = "1",
    gpus: int = 0,
    *,
    job: str = "",
    role: str = "data-worker",
    rank: int = 0,
    on: str = "",
    gated: bool = False,
    memory: str = "1Gi",
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> Json:
    requests = {"cpu": cpu, "memory": memory}
    if gpus:
        requests[GPU] = str(gpus)
    tags = {}
    if job:
        tags = {
            labels.JOB: job,
            labels.JOB_UID: f"uid-{job}",
            labels.ROLE: role,
            labels.RANK: str(rank),
            labels.INCARNATION: "0",
        }
    document: Json = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": tags,
            "annotations": {},
            "creationTimestamp": created,
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}], **spec},
        "status": {"phase": "Running" if on else "Pending", "conditions": []},
    }
    if on:
        document["spec"]["nodeName"] = on
        document["status"]["conditions"].append({"type": "Ready", "status": "True"})
    if gated:
        document["spec"]["schedulingGates"] = [GATE]
    return document


def job(name: str, **spec: Any) -> Json:
    worker = {"template": {"spec": pod("w", "8", 1)["spec"]}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"replicaSpecs": {"worker": worker, **spec.pop("roles", {})}, **spec},
        "status": {},
    }


def unschedulable(document: Json, since: str) -> Json:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": since,
    }
    return {**document, "status": {**document["status"], "conditions": [condition]}}
