"""Which container of a pod is the one that trains: the one named ``main``, else the first.

By its end the pod's end is told, to it go cpu and memory of a Scale, and it has the job's token;
what runs beside it (a proxy, a shipper of logs) is the template's own business. A pod remembers its
main container in an annotation, since what injects containers as a pod is made may put its own
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.crds import labels

MAIN: Final = "main"
_ENDED: Final = frozenset({"Failed", "Succeeded"})

Json = Mapping[str, Any]


def main_index(containers: Sequence[Json]) -> int:
    """The place of the main container among a template's containers, of which there is one."""
    return next((index for index, one in enumerate(containers) if one.get("name") == MAIN), 0)


def main_of_pod(pod: Json) -> Json:
    """The main container of a pod as the API server holds it; empty where it has no container."""
    containers: Sequence[Json] = (pod.get("spec") or {}).get("containers") or ()
    if not containers:
        return {}
    told = ((pod.get("metadata") or {}).get("annotations") or {}).get(labels.MAIN_CONTAINER)
    found = next((one for one in containers if told and one.get("name") == told), None)
    return containers[main_index(containers)] if found is None else found


def has_ended(pod: Json) -> bool:
    """Whether a pod's main container will not run again, whatever runs on beside it."""
    status = pod.get("status") or {}
    if status.get("phase") in _ENDED:
        return True
    name = main_of_pod(pod).get("name")
    return any(
        one.get("name") == name and bool((one.get("state") or {}).get("terminated"))
        for one in status.get("containerStatuses") or ()
    )
