"""Wakes those who wait for a job's next plan.

Only a hint to look again: nothing is queued here, hence nothing can be lost or grow. Who subscribes
before looking, and looks again whenever woken, misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class PlanSubscribers:
    """Waiting tasks by job."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._revisions: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(len(events) for events in self._waiting.values())

    def jobs(self) -> list[str]:
        """The jobs that somebody waits for."""
        return list(self._waiting)

    @contextmanager
    def subscribed(self, uid: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something about the job's plans has changed.

        Clear it before looking.
        """
        event = asyncio.Event()
        self._waiting.setdefault(uid, set()).add(event)
        try:
            yield event
        finally:
            waiting = self._waiting[uid]
            waiting.discard(event)
            if not waiting:
                del self._waiting[uid]
                self._revisions.pop(uid, None)

    def wake(self, uid: str) -> None:
        """Something about the job's plans has changed."""
        for event in self._waiting.get(uid, ()):
            event.set()

    def wake_all(self) -> None:
        """The Brain stops: let everybody look once more."""
        for uid in self._waiting:
            self.wake(uid)

    def notice(self, revisions: Mapping[str, int]) -> None:
        """Wake those whose job has another revision than when it was noticed last.

        This is how plans of another Brain on the same database are seen.
        """
        for uid, revision in revisions.items():
            if uid in self._waiting and self._revisions.get(uid) != revision:
                self._revisions[uid] = revision
                self.wake(uid)
