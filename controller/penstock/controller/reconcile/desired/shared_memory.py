"""``/dev/shm`` of pods that load data: as large as the container's memory, not 64 MiB.

Container runtimes give a container 64 MiB there, of which the workers of a DataLoader and NCCL run
out with a bus error that names neither. What is written there counts to the memory of the container
that writes it, so its memory is the bound: whoever needs more is ended for using too much memory,
which is answered, and takes nothing from others. Where a container names no memory, the kubelet
bounds the volume by what the pod may have. A volume of this kind is admitted at every level of Pod
Security.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.base.enums import DATA_ROLES, Role

PATH: Final = "/dev/shm"  # noqa: S108  a mount point, no file of ours
VOLUME: Final = "penstock-shm"
ROLES: Final = frozenset({Role.WORKER, *DATA_ROLES, Role.EVALUATOR})
"""Whose programs load data, or exchange gradients."""

Json = dict[str, Any]


def add_shared_memory(pod_spec: Json, container: Json) -> None:
    """Mount it in a pod's main container, unless the template says what is to be there.

    Nothing is done where the container mounts something at that path, or has the node's own.
    """
    mounts = container.get("volumeMounts") or []
    volumes = pod_spec.get("volumes") or []
    taken = any(str(one.get("mountPath", "")).rstrip("/") == PATH for one in mounts)
    if taken or pod_spec.get("hostIPC") or any(one.get("name") == VOLUME for one in volumes):
        return
    source: Json = {"medium": "Memory"}
    resources = container.get("resources") or {}
    stated = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    if stated.get("memory") is not None:
        source["sizeLimit"] = stated["memory"]
    pod_spec["volumes"] = [*volumes, {"name": VOLUME, "emptyDir": source}]
    container["volumeMounts"] = [*mounts, {"name": VOLUME, "mountPath": PATH}]
