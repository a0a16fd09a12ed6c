"""How many streams a caller may have open, and for how long.

A stream outlives the request's check of access, so it ends after some minutes, and whoever may
still see the plans asks again with the last id.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.brain.service.sample_writer import OverloadedError

STREAM_SECONDS: Final = 300.0
MOST_PER_JOB: Final = 8
MOST_PER_CALLER: Final = 1024
"""Of all jobs: one API token may be that of many trainers."""


class Streams:
    """The open streams of one service."""

    def __init__(self) -> None:
        self._by_job: Counter[tuple[str, str]] = Counter()
        self._by_caller: Counter[str] = Counter()

    def open(self, caller: str, uid: str) -> None:
        """One more.

        Raises:
            OverloadedError: There are too many already.
        """
        if self._by_job[caller, uid] >= MOST_PER_JOB:
            raise OverloadedError(f"{caller} watches this job {MOST_PER_JOB} times already")
        if self._by_caller[caller] >= MOST_PER_CALLER:
            raise OverloadedError(f"{caller} watches {MOST_PER_CALLER} jobs already")
        self._by_job[caller, uid] += 1
        self._by_caller[caller] += 1

    def close(self, caller: str, uid: str) -> None:
        """One less."""
        self._by_job[caller, uid] -= 1
        self._by_caller[caller] -= 1
        if not self._by_job[caller, uid]:
            del self._by_job[caller, uid]
        if not self._by_caller[caller]:
            del self._by_caller[caller]


class CountedStream(StreamingResponse):
    """A stream that is counted until it ends, however it does."""

    def count(self, streams: Streams, caller: str, uid: str) -> None:
        """Count it from now on.

        Raises:
            OverloadedError: There are too many already.
        """
        streams.open(caller, uid)
        self._counted = (streams, caller, uid)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            streams, caller, uid = self._counted
            streams.close(caller, uid)
