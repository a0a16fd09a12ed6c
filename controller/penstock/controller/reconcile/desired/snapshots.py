"""What ``spec.snapshots`` adds to workers: memory for snapshots, beside what the training needs.

A snapshot in the agent's memory counts to the container that keeps it. A job whose pods were just
large enough would be killed for it, so the room comes on top of what the template asks for, and the
pod is told how much that is: it keeps so many copies as fit into what was added, and none where
nothing was. How many copies the job's own limits leave room for is a function of the spec alone,
with as many workers as the job may have: pods of one job do not differ by when they were made.

A container that names no memory has no bound of its own, and gets none. A Scale that names a
worker's memory names all of it: what is above the template's is for snapshots. Where the API server
refuses a pod for a quota of its namespace, the same pod `without_room` is made instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base import quantity
from penstock.base.enums import Role, Strategy
from penstock.crds import environment
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.main_container import main_index
from penstock.crds.replica_spec import ReplicaSpec

MOST_COPIES: Final = 2
"""One that is whole while the next is made."""
_MEMORY: Final = "memory"
_MEBIBYTE: Final = 1 << 20
_OWN_BYTES: Final = 2 * _MEBIBYTE
_OWN_SHARE: Final = 100
"""Beside the tensors a copy has what describes them, and each tensor begins at a round address."""

Json = dict[str, Any]


def copies(spec: ElasticJobSpec, requested: int) -> int:
    """For how many copies there is room within the job's limits.

    Args:
        spec: of the job.
        requested: bytes that all pods request without snapshots, at the greatest number of workers.
    """
    if spec.snapshots is None:
        return 0
    limit = (spec.resource_limits or {}).get(_MEMORY)
    if limit is None:
        return MOST_COPIES
    left = quantity.parse_bytes(limit) - requested
    return max(0, min(MOST_COPIES, left // (copy_bytes(spec) * most_workers(spec))))


def copy_bytes(spec: ElasticJobSpec) -> int:
    """Bytes that one copy of the state takes; whole mebibytes."""
    assert spec.snapshots is not None
    size = quantity.parse_bytes(spec.snapshots.state_size)
    wanted = size + size // _OWN_SHARE + _OWN_BYTES
    return -(-wanted // _MEBIBYTE) * _MEBIBYTE


def most_workers(spec: ElasticJobSpec) -> int:
    """Workers for which there is to be room; one, where there is never more than one."""
    if spec.strategy is Strategy.LOCAL:
        return 1
    return max(1, most_replicas(spec.replica_specs.worker))


def most_replicas(role: ReplicaSpec) -> int:
    """The most that there may be of a role: ``replicas`` where they are fixed, since no plan counts
    then, else ``maxReplicas``, and where nothing bounds a plan ``minReplicas``.
    """
    if role.replicas:
        return role.replicas
    return role.min_replicas if role.max_replicas is None else role.max_replicas


def with_room(template: Mapping[str, Any], added: int) -> Mapping[str, Any]:
    """A worker's template whose main container has so many bytes more, in request and limit."""
    containers = list(template["spec"]["containers"])
    place = main_index(containers)
    resources = dict(containers[place].get("resources") or {})
    for kind in ("requests", "limits"):
        stated = (resources.get(kind) or {}).get(_MEMORY)
        if stated is not None:
            resources[kind] = {**resources[kind], _MEMORY: _sum(stated, added)}
    containers[place] = {**containers[place], "resources": resources}
    return {**template, "spec": {**template["spec"], "containers": containers}}


def room(added: int, template_memory: int | None, stated: int | None) -> int:
    """Bytes that the snapshots of one pod may take.

    Args:
        added: what `with_room` has added to the template.
        template_memory: what the template's main container names without that; None: nothing.
        stated: what a Scale says that the pod's memory is; None: none does.
    """
    if stated is None or template_memory is None:
        return added
    return max(0, min(added, stated - template_memory))


def without_room(pod: Mapping[str, Any]) -> Json | None:
    """The same pod as it is without room for snapshots; None where it has none."""
    containers = list(pod["spec"]["containers"])
    place = main_index(containers)
    variables = containers[place].get("env") or ()
    told = next((one for one in variables if one.get("name") == environment.SNAPSHOT_MEMORY), None)
    added = int(told["value"]) if told is not None else 0
    if not added:
        return None
    bare = with_room({"spec": {"containers": containers}}, -added)["spec"]["containers"]
    rest = [one for one in variables if one is not told]
    env = [{"name": environment.SNAPSHOT_MEMORY, "value": "0"}, *rest]
    containers[place] = {**bare[place], "env": env}
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def main_memory(template: Mapping[str, Any]) -> int | None:
    """What the main container of a template may use: its limit, else its request."""
    containers = template["spec"]["containers"]
    resources = containers[main_index(containers)].get("resources") or {}
    for kind in ("limits", "requests"):
        stated = (resources.get(kind) or {}).get(_MEMORY)
        if stated is not None:
            return quantity.parse_bytes(stated)
    return None


def missing(spec: ElasticJobSpec, found: int) -> str:
    """Why pods keep fewer snapshots than two, and what to do; else ""."""
    if spec.snapshots is None or found >= MOST_COPIES:
        return ""
    keep = "one snapshot" if found else "no snapshot"
    needed = quantity.format_bytes(MOST_COPIES * copy_bytes(spec) * most_workers(spec))
    limit = (spec.resource_limits or {}).get(_MEMORY)
    bound = "replicas" if spec.replica_specs.worker.replicas else "maxReplicas"
    return (
        f"spec.snapshots: workers keep {keep} in memory, as two for each of {most_workers(spec)}"
        f" {Role.WORKER.value}s need {needed} more than the replicas request, of at most {limit};"
        f" raise spec.resourceLimits[memory] or lower {bound}"
    )


def _sum(stated: str | int, added: int) -> str:
    return quantity.format_bytes(quantity.parse_bytes(stated) + added)
