"""Events that the cluster's own components record on objects, as ``kubectl describe`` shows them.

The same event on the same object is counted, not repeated. What is remembered for that is bounded;
recording never fails its caller, since an event is a courtesy.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_cluster.registry import Api, ApiError

Json = Mapping[str, Any]

_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024


@dataclass(slots=True)
class _Recorded:
    name: str
    count: int


class EventRecorder:
    """Records events in the name of one component."""

    def __init__(self, api: Api, component: str, now: Callable[[], str], host: str = "") -> None:
        self._api = api
        self._now = now
        self._source = {"component": component} | ({"host": host} if host else {})
        self._component = component
        self._known: OrderedDict[tuple[str, str, str], _Recorded] = OrderedDict()

    async def record(
        self, involved: Json, kind: str, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Record an event on an object; ``kind`` is the object's."""
        metadata = involved["metadata"]
        message = message[:_LONGEST_MESSAGE]
        namespace = metadata.get("namespace") or "default"
        key = (metadata["uid"], reason, message)
        now = self._now()
        known = self._known.get(key)
        try:
            if known is not None:
                known.count += 1
                change = {"count": known.count, "lastTimestamp": now}
                await self._api.patch("events", known.name, change, namespace)
                self._known.move_to_end(key)
                return
        except ApiError:
            del self._known[key]  # it expired or was deleted: record it anew
        name = f"{metadata['name']}.{secrets.token_hex(8)}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": involved.get("apiVersion") or "v1",
                "kind": kind,
                "name": metadata["name"],
                "namespace": metadata.get("namespace") or "",
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion") or "",
            },
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "source": self._source,
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.create("events", event, namespace)
        except ApiError:
            return  # the namespace is going, or the name is taken: the event is lost
        self._known[key] = _Recorded(name, 1)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
