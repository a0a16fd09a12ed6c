"""What has befallen the job's pods, for the Brain: out of memory, preempted, failed. Pure.

The controller acts on a death at once and by itself: it gives a killed worker twice the memory, or
makes twice the servers, because a Brain may be away. The Brain is told as well, so that it can see
what no single death shows (several ranks that meet the same end) and remember it for later jobs; a
plan of its own takes the same road as any other.

An event is known by its job, time, kind, role and rank, all of which are read from the pod. So it
may be told again, by a trainer that has begun anew, and is stored once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from penstock.base import quantity
from penstock.base.enums import EventKind, Role
from penstock.base.fields import RANK
from penstock.crds import labels
from penstock.wire.samples import JobEvent

_ROLES: Final = {role.in_names: role for role in Role}
_DISRUPTED: Final = "DisruptionTarget"
_OVERDUE: Final = "DeadlineExceeded"


def pod_events(pods: Iterable[Mapping[str, Any]]) -> list[JobEvent]:
    """What the pods that have failed died of, oldest first; pods of others are left out."""
    found = [event for pod in pods if (event := _event(pod)) is not None]
    return sorted(found, key=lambda event: event.time)


def _event(pod: Mapping[str, Any]) -> JobEvent | None:
    tags, status = pod["metadata"].get("labels") or {}, pod.get("status") or {}
    role, rank = _ROLES.get(tags.get(labels.ROLE, "")), tags.get(labels.RANK, "")
    if role is None or not re.fullmatch(RANK, rank) or status.get("phase") != "Failed":
        return None
    ended = [
        (container, state)
        for container in status.get("containerStatuses") or ()
        if (state := (container.get("state") or {}).get("terminated")) and state.get("exitCode")
    ]
    at = max((time for _, state in ended if (time := _time(state.get("finishedAt")))), default=None)
    if at is None:
        return None  # nothing of it ever ran
    killed = next((one for one, state in ended if state.get("reason") == "OOMKilled"), None)
    if killed is not None:
        kind, limit = EventKind.OUT_OF_MEMORY, _memory_limit(pod, killed.get("name"))
    else:
        kind, limit = EventKind.PREEMPTED if _was_disrupted(status) else EventKind.FAILED, None
    node = (pod.get("spec") or {}).get("nodeName") or ""
    return JobEvent(
        time=at, kind=kind, role=role, rank=int(rank), memory_limit_bytes=limit, node=node
    )


def _was_disrupted(status: Mapping[str, Any]) -> bool:
    """Whether somebody else ended it: the scheduler, an eviction, the node."""
    conditions = status.get("conditions") or ()
    if any(one.get("type") == _DISRUPTED and one.get("status") == "True" for one in conditions):
        return True
    return bool(status.get("reason")) and status["reason"] != _OVERDUE


def _memory_limit(pod: Mapping[str, Any], name: Any) -> int | None:
    """The limit in bytes that a container ran into, where it has one of its own."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        if container.get("name") == name:
            limits = (container.get("resources") or {}).get("limits") or {}
            try:
                return quantity.parse_bytes(limits.get("memory", 0)) or None
            except ValueError:
                return None
    return None


def _time(text: Any) -> float | None:
    """A moment of the API in seconds since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None
