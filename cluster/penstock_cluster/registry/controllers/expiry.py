"""Events are kept for an hour, as the real server does."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from penstock_cluster.registry.operations.storage import Storage

_EVENT_LIFETIME: Final = timedelta(hours=1)


def expire_events(storage: Storage) -> None:
    """Forget the events of more than an hour ago, by when they were last seen."""
    table = storage.store.table("events")
    oldest = (storage.now() - _EVENT_LIFETIME).isoformat()[:19] + "Z"
    for version in list(table.items.values()):
        event = version.object
        seen = max(
            str(event["metadata"].get("creationTimestamp") or ""),
            str(event.get("lastTimestamp") or ""),
            str((event.get("series") or {}).get("lastObservedTime") or ""),
        )
        if seen < oldest:
            storage.store.remove(table, version.key)
