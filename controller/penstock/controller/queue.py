"""A queue of keys to look at again: each key is in it at most once and never with two workers.

What names a key (an event, a timer, a failed pass) says nothing about what to do; a key that comes
in while it is being worked on is worked on once more afterwards. A key that fails waits for an
exponentially growing time with jitter and holds up no other key.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 60.0


class KeyedQueue(Generic[K]):
    """Keys in order of arrival. For one event loop; nothing in it blocks but `get`."""

    def __init__(self, random_source: random.Random) -> None:
        self._random = random_source
        self._waiting: deque[K] = deque()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._available = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no key waits and none is being worked on; keys with timers do not count."""
        return not self._waiting and not self._working

    def add(self, key: K) -> None:
        """Have a key looked at as soon as a worker is free."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._waiting.append(key)
            self._available.set()

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Have a key looked at after a time, unless it is already to be looked at sooner."""
        if delay_seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_seconds
        present = self._timers.get(key)
        if present is not None:
            if present[0] <= when:
                return
            present[1].cancel()
        self._timers[key] = (when, loop.call_at(when, self._ring, key))

    def _ring(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    async def get(self) -> K:
        """The next key; it must be given back with `done`, `failed` or both."""
        while not self._waiting:
            self._available.clear()
            await self._available.wait()
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker has finished with a key; if it came in meanwhile it is next in line again."""
        self._working.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._available.set()

    def succeeded(self, key: K) -> None:
        """The key's pass went well: its next failure waits the shortest time again."""
        self._failures.pop(key, None)

    def failed(self, key: K, at_least_seconds: float = 0.0) -> float:
        """The key's pass failed: look again after a growing pause.

        Returns:
            The pause in seconds.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        factor: int = 2 ** min(failures, 20)
        longest = min(FIRST_DELAY_SECONDS * factor, LONGEST_DELAY_SECONDS)
        delay = max(at_least_seconds, longest * self._random.uniform(0.5, 1.0))
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """A key that no longer exists: drop its timer and its failures."""
        self._failures.pop(key, None)
        present = self._timers.pop(key, None)
        if present is not None:
            present[1].cancel()

    def close(self) -> None:
        """Cancel all timers."""
        for _, handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
