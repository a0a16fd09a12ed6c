"""What ``spec.input.cache`` adds to pods: the socket of the node's cache, or memory for one's own.

The daemon of a node listens on a socket in a folder of the node, which pods see read-only: enough
to connect, not to put another socket there. Where a namespace forbids folders of the node, as Pod
Security does at `baseline` and `restricted`, the API server refuses such a pod, and the same pod
`without_socket` is made instead: a job never fails for the sake of a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from penstock.base import quantity
from penstock.base.enums import DATA_ROLES, CacheScope, Role
from penstock.crds import environment
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.main_container import main_index

VOLUME: Final = "penstock-cache"
ROLES: Final = frozenset({Role.WORKER, *DATA_ROLES, Role.EVALUATOR})
"""Whose programs read the dataset."""

_MEBIBYTE: Final = 1 << 20
_OWN_BYTES: Final = 64 * _MEBIBYTE
_OWN_SHARE: Final = 50
"""Beside what it holds a cache takes so many bytes, and this part of it once more, for its process,
its index and what it knows of each file: enough for files of 80 KB on average. The chart asks for
as much for the cache of a node."""

Json = dict[str, Any]


def wants_socket(spec: ElasticJobSpec, role: Role) -> bool:
    """Whether pods of a role are to reach the cache of their node."""
    asked = spec.input.cache
    return asked is not None and asked.scope is not CacheScope.POD and role in ROLES


def add_socket(pod_spec: Json, container: Json, socket: str) -> None:
    """Let a pod's main container reach the node's cache, or find that there is none."""
    folder = str(PurePosixPath(socket).parent)
    volumes = [one for one in pod_spec.get("volumes") or () if one.get("name") != VOLUME]
    # Made where there is no daemon: a pod whose volume is missing would never start.
    source = {"path": folder, "type": "DirectoryOrCreate"}
    pod_spec["volumes"] = [*volumes, {"name": VOLUME, "hostPath": source}]
    mounts = [
        one
        for one in container.get("volumeMounts") or ()
        if one.get("name") != VOLUME and one.get("mountPath") != folder
    ]
    mount = {"name": VOLUME, "mountPath": folder, "readOnly": True}
    container["volumeMounts"] = [*mounts, mount]
    variables = [
        one for one in container.get("env") or () if one.get("name") != environment.CACHE_SOCKET
    ]
    container["env"] = [{"name": environment.CACHE_SOCKET, "value": socket}, *variables]


def without_socket(pod: Mapping[str, Any]) -> Json | None:
    """The same pod as it is without the node's cache; None where it has none of it."""
    pod_spec = pod["spec"]
    if not any(one.get("name") == VOLUME for one in pod_spec.get("volumes") or ()):
        return None
    return {
        **pod,
        "spec": {
            **pod_spec,
            "volumes": [one for one in pod_spec["volumes"] if one.get("name") != VOLUME],
            "containers": [_container_without(one) for one in pod_spec["containers"]],
        },
    }


def _container_without(container: Mapping[str, Any]) -> Json:
    return {
        **container,
        "volumeMounts": [
            one for one in container.get("volumeMounts") or () if one.get("name") != VOLUME
        ],
        "env": [
            one for one in container.get("env") or () if one.get("name") != environment.CACHE_SOCKET
        ],
    }


def with_memory(spec: ElasticJobSpec, template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A data worker's template with room for a cache of its own: memfds count to its container.

    A request grows by what it holds and what it takes for itself, and a limit; of a container that
    asks for no memory, the cache is all that is asked for. A Scale that names memory names all of
    it.
    """
    asked = spec.input.cache
    if asked is None or asked.scope is not CacheScope.POD:
        return template
    added = memory_of(quantity.parse_bytes(asked.memory))
    containers = list(template["spec"]["containers"])
    place = main_index(containers)
    resources = dict(containers[place].get("resources") or {})
    limit = (resources.get("limits") or {}).get("memory")
    if limit is not None:
        resources["limits"] = {**resources["limits"], "memory": _sum(limit, added)}
    request = (resources.get("requests") or {}).get("memory")
    if request is not None or limit is None:
        grown = _sum(request or 0, added)
        resources["requests"] = {**(resources.get("requests") or {}), "memory": grown}
    containers[place] = {**containers[place], "resources": resources}
    return {**template, "spec": {**template["spec"], "containers": containers}}


def memory_of(held_bytes: int) -> int:
    """Bytes that a cache takes which holds so many of files."""
    return held_bytes + held_bytes // _OWN_SHARE // _MEBIBYTE * _MEBIBYTE + _OWN_BYTES


def _sum(quantity_: str | int, added: int) -> str:
    return quantity.format_bytes(quantity.parse_bytes(quantity_) + added)
