"""Which of the nodes that fit is best: LeastAllocated and BalancedAllocation, as by default.

``NodeResourcesFit`` (LeastAllocated) prefers the node with the largest free share of CPU and
memory, ``NodeResourcesBalancedAllocation`` the one whose shares in use are closest together;
both give 0 to 100 and weigh the same in kube-scheduler's default profile. Best-effort pods count
with kube-scheduler's defaults (100 milli-CPU, 200 MiB), or they would all land on one node.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from penstock_cluster.requests import CPU, MEMORY
from penstock_cluster.scheduler.nodes.inventory import NodeAccount

_WITHOUT_REQUEST = {CPU: 100, MEMORY: 200 << 20}


def score(requests: Mapping[str, int], account: NodeAccount) -> int:
    """0 (worst) to 200 for putting the pod there, the pod's own request included."""
    shares = []
    free_shares = 0
    for resource, default in _WITHOUT_REQUEST.items():
        allocatable = account.allocatable.get(resource, 0)
        if allocatable == 0:
            continue
        used = account.used.get(resource, 0) + (requests.get(resource) or default)
        shares.append(min(1.0, used / allocatable))
        free_shares += max(0, allocatable - used) * 100 // allocatable
    if not shares:
        return 0
    return free_shares // len(shares) + int((1 - _standard_deviation(shares)) * 100)


def _standard_deviation(shares: list[float]) -> float:
    mean = sum(shares) / len(shares)
    return sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
