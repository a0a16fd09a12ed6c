"""The job-wide cap ``resourceLimits`` (C_total of DLRover, section 4): what a target would request.

Counted are the pods of all roles. Not counted are spare workers, which are beyond the quota by
definition (the spec's own ``spareReplicas`` bounds them), and the trainer, whose small request is
the same for every target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base import quantity
from penstock.base.enums import DATA_ROLES, Role
from penstock.controller.reconcile.desired import cache, snapshots
from penstock.controller.reconcile.desired.accelerators import (
    accelerator_of,
    with_one_accelerator,
    without_accelerators,
)
from penstock.controller.reconcile.desired.targets import RoleTarget, Target
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.main_container import main_index

CPU: Final = "cpu"
MEMORY: Final = "memory"


def parse(resource: str, text: str | int) -> int:
    """A quantity in the unit that is counted with: milli-cores for cpu, else whole units.

    Raises:
        ValueError: the text is not a quantity; the message holds the text and the rule.
    """
    return quantity.parse_milli_cpu(text) if resource == CPU else quantity.parse_bytes(text)


def show(resource: str, amount: int) -> str:
    """The amount as a quantity, for messages."""
    if resource == CPU:
        return quantity.format_milli_cpu(amount)
    return quantity.format_bytes(amount)


def template_of(spec: ElasticJobSpec, role: Role) -> Mapping[str, Any]:
    """The pod template of a role: for data workers that are not declared, the worker's.

    Accelerators are left out of the latter, but for one where the role is to have one and the
    worker has any. That of data workers which keep files in their own memory has room for them, and
    that of workers for their snapshots.
    """
    declared = spec.replica_specs.by_role().get(role)
    template: Mapping[str, Any]
    if declared is not None:
        template = declared.template
    else:
        template = _from_worker(spec.replica_specs.worker.template, role)
    if role is Role.WORKER and spec.snapshots is not None:
        return snapshots.with_room(template, snapshot_bytes(spec))
    return cache.with_memory(spec, template) if role in DATA_ROLES else template


def snapshot_copies(spec: ElasticJobSpec) -> int:
    """How many snapshots each worker has room for within ``resourceLimits``.

    Counted are as many workers as the job may have, and the most of each other declared role.
    """
    if spec.snapshots is None:
        return 0
    total = 0
    for role, declared in spec.replica_specs.by_role().items():
        most = snapshots.most_replicas(declared)
        count = snapshots.most_workers(spec) if role is Role.WORKER else most
        template = cache.with_memory(spec, declared.template) if role in DATA_ROLES else None
        each = template_requests(template or declared.template)
        total += count * sum(container.get(MEMORY, 0) for container in each)
    return snapshots.copies(spec, total)


def snapshot_bytes(spec: ElasticJobSpec) -> int:
    """What the memory of each worker grows by."""
    copies = snapshot_copies(spec)
    return copies * snapshots.copy_bytes(spec) if copies else 0


def _from_worker(template: Mapping[str, Any], role: Role) -> Mapping[str, Any]:
    found = accelerator_of(template) if role is Role.ACCELERATED_DATA_WORKER else None
    return with_one_accelerator(template, found) if found else without_accelerators(template)


def template_requests(template: Mapping[str, Any]) -> list[dict[str, int]]:
    """What each container of a template requests, a limit standing in for a missing request.

    Raises:
        ValueError: a quantity does not parse; the message names the container and the resource.
    """
    requests: list[dict[str, int]] = []
    for container in template["spec"]["containers"]:
        resources = container.get("resources") or {}
        merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        amounts: dict[str, int] = {}
        for resource, text in merged.items():
            try:
                amounts[resource] = parse(resource, text)
            except ValueError as error:
                name = container.get("name", "?")
                raise ValueError(f"containers[{name}].resources: {resource}: {error}") from error
        requests.append(amounts)
    return requests


def _role_requests(spec: ElasticJobSpec, role: Role, target: RoleTarget) -> dict[str, int]:
    template = template_of(spec, role)
    others = template_requests(template)
    main = others.pop(main_index(template["spec"]["containers"]))
    if target.cpu_milli is not None:
        main[CPU] = target.cpu_milli
    if target.memory_bytes is not None:
        main[MEMORY] = target.memory_bytes
    total = {resource: amount * target.replicas for resource, amount in main.items()}
    for container in others:
        for resource, amount in container.items():
            total[resource] = total.get(resource, 0) + amount * target.replicas
    for rank, own in target.ranks.items():
        if rank >= target.replicas:
            continue
        for resource, other in ((CPU, own.cpu_milli), (MEMORY, own.memory_bytes)):
            if other is not None:
                total[resource] = total.get(resource, 0) + other - main.get(resource, 0)
    return total


def requests(spec: ElasticJobSpec, target: Target) -> dict[str, int]:
    """What all pods of a target together request, by resource."""
    total: dict[str, int] = {}
    for role, role_target in target.roles.items():
        if role_target.replicas:
            for resource, amount in _role_requests(spec, role, role_target).items():
                total[resource] = total.get(resource, 0) + amount
    return total


def excess(spec: ElasticJobSpec, target: Target) -> dict[str, tuple[int, int]]:
    """The resources of which a target requests more than the job may: (requested, limit)."""
    limits = spec.resource_limits or {}
    if not limits:
        return {}
    wanted = requests(spec, target)
    over: dict[str, tuple[int, int]] = {}
    for resource, text in limits.items():
        limit = parse(resource, text)
        if wanted.get(resource, 0) > limit:
            over[resource] = (wanted[resource], limit)
    return over


def describe(over: Mapping[str, tuple[int, int]]) -> str:
    """The excess in words: resource, amount, limit."""
    return "; ".join(
        f"spec.resourceLimits[{resource}]: the replicas request {show(resource, wanted)} of at most"
        f" {show(resource, limit)}"
        for resource, (wanted, limit) in sorted(over.items())
    )
