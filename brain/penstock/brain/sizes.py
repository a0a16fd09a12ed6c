"""Sizes of pods: what a plan may give one, and how a measured need becomes a size.

CPU is milli-cores, memory bytes. A size never exceeds what one pod may have (`Limits`), and never
falls below what a container needs to start.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.base.enums import Role, Stage
from penstock.brain.planning import History, JobDescription, Limits, RankPlan, RolePlan

CORE: Final = 1000
MIB: Final = 1024**2
GIB: Final = 1024**3
LEAST_MILLI_CPU: Final = 100
LEAST_MEMORY_BYTES: Final = 64 * MIB
MEMORY_STEP_BYTES: Final = 64 * MIB
SERVER_BASE_BYTES: Final = GIB
"""Of a parameter server's memory, what its process may need however few parameters it holds."""
SERVER_UNEVEN: Final = 2.0
"""How much more unevenly parameters may lie on more servers: they are placed by whole tensors."""


def pod_milli_cpu(need: float, limits: Limits, step: int = 100) -> int:
    """`need` rounded up to a multiple of `step`, within what one pod may have."""
    rounded = math.ceil(need / step - 1e-9) * step
    return max(min(LEAST_MILLI_CPU, limits.pod_milli_cpu), min(rounded, limits.pod_milli_cpu))


def pod_memory_bytes(need: float, limits: Limits) -> int:
    """`need` rounded up to 64 MiB, within what one pod may have."""
    rounded = math.ceil(need / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES
    size = max(LEAST_MEMORY_BYTES, rounded)
    return size if limits.pod_memory_bytes is None else min(size, limits.pod_memory_bytes)


def server_memory_bytes(seen: float, servers: int, wanted: int) -> float:
    """What the fullest of `wanted` servers may need, where that of `servers` used `seen` bytes.

    More servers lessen neither what the process itself needs nor the largest tensor. Fewer are
    taken to hold all that was seen: what of it was the process is not known.
    """
    if wanted <= servers:
        return seen * servers / wanted
    base = min(seen, SERVER_BASE_BYTES)
    return base + min(1.0, SERVER_UNEVEN * servers / wanted) * (seen - base)


def in_force(history: History) -> dict[Role, RolePlan]:
    """What all plans that took effect add up to: per role, rank and field, the newest that says it.

    A rank's own resources hold until a later plan gives that rank others, as with Scales; those of
    ranks that a later plan removed are forgotten.
    """
    roles: dict[Role, RolePlan] = {}
    for applied in history.plans:
        for role, new in applied.roles.items():
            old = roles.get(role, RolePlan())
            ranks = dict(old.ranks)
            for rank, own in new.ranks.items():
                ranks[rank] = _merged(ranks.get(rank, RankPlan()), own)
            replicas = old.replicas if new.replicas is None else new.replicas
            roles[role] = RolePlan(
                replicas=replicas,
                spare_replicas=(
                    old.spare_replicas if new.spare_replicas is None else new.spare_replicas
                ),
                milli_cpu=old.milli_cpu if new.milli_cpu is None else new.milli_cpu,
                memory_bytes=old.memory_bytes if new.memory_bytes is None else new.memory_bytes,
                ranks={
                    rank: plan
                    for rank, plan in sorted(ranks.items())
                    if replicas is None or rank < replicas
                },
            )
    return roles


def _merged(old: RankPlan, new: RankPlan) -> RankPlan:
    return RankPlan(
        milli_cpu=old.milli_cpu if new.milli_cpu is None else new.milli_cpu,
        memory_bytes=old.memory_bytes if new.memory_bytes is None else new.memory_bytes,
        avoid_nodes=new.avoid_nodes or old.avoid_nodes,
    )


def granted_milli_cpu(history: History, job: JobDescription, role: Role) -> int | None:
    """CPU of one pod of `role` now: by the newest plan, the newest sample, or the template."""
    planned = in_force(history).get(role)
    if planned is not None and planned.milli_cpu is not None:
        return planned.milli_cpu
    for sample in reversed(history.samples):
        known = [rank.milli_cpu_limit for rank in sample.ranks(role).values()]
        sizes = sorted(size for size in known if size is not None)
        if sizes:
            return sizes[len(sizes) // 2]
    return job.role(role).milli_cpu


def next_stage(history: History) -> Stage:
    """Of a plan that sizes a job by its own samples: the first of them is Optimize."""
    last = history.plans[-1].stage
    return Stage.OPTIMIZE if last in (Stage.CREATE, Stage.SAMPLE) else Stage.ADJUST


def server_changes(history: History) -> int:
    """How often the servers of a running job have been changed: each time stopped the training."""
    return sum(
        1 for plan in history.plans if plan.stage is not Stage.CREATE and Role.PS in plan.roles
    )


def servers_rested(history: History, interval_seconds: float) -> bool:
    """Whether the servers may change again: so long after the last change of them took effect."""
    return seconds_with_servers(history) >= interval_seconds


def seconds_with_servers(history: History) -> float:
    """Since the last change of servers took effect; infinite where there was none, negative where
    it has not taken effect yet.
    """
    for plan in reversed(history.plans):
        if plan.stage is not Stage.CREATE and Role.PS in plan.roles:
            since = plan.settled_seconds
            return -1.0 if since is None else max(0.0, history.now_seconds - since)
    return math.inf
