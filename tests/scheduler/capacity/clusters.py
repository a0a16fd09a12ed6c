"""Small clusters, and what happens to them."""

from __future__ import annotations

from typing import Any

from penstock.scheduler.capacity.workload import HostedNode, PodGroup, WaitingJob, Workload
from penstock.scheduler.objects import Amounts, Node
from penstock.scheduler.request import Constraints, Request

GPU = "nvidia.com/gpu"
GIB = 1024**3


def amounts(cores: int, gpus: int = 0) -> Amounts:
    return Amounts(1000 * cores, 64 * GIB, ((GPU, gpus),) if gpus else ())


def hosted(name: str, cores: int = 8, gpus: int = 0, **others: Any) -> HostedNode:
    labels = others.pop("labels", {})
    cordoned = others.pop("cordoned", False)
    node = Node(name, amounts(cores, gpus), labels=labels, cordoned=cordoned)
    return HostedNode(node=node, **others)


def pods(
    job: str,
    count: int,
    *,
    on: str = "",
    cores: int = 4,
    gpus: int = 1,
    role: str = "worker",
    zone: str = "",
    **more: Any,
) -> PodGroup:
    constraints = Constraints(node_selector=(("zone", zone),) if zone else ())
    request = Request(
        milli_cpu=1000 * cores,
        memory_bytes=GIB,
        accelerators=gpus,
        accelerator_kinds=(GPU,) if gpus else (),
        constraints=constraints,
    )
    return PodGroup(job=job, role=role, node=on, request=request, count=count, **more)


def cluster(nodes: list[HostedNode], *groups: PodGroup, **together: int) -> Workload:
    jobs = {one.job for one in groups if one.job}
    return Workload(
        nodes=tuple(nodes),
        pods=groups,
        jobs={
            uid: WaitingJob(uid=uid, namespace="default", name=uid, together=together.get(uid, 0))
            for uid in jobs
        },
    )
