"""The slots of one worker: leased ahead, in work, and what the trainer has yet to hear of them.

A slot is one batch. What is said to the trainer is said again until it has been heard, so that an
answer that is lost does no harm.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from penstock.job.protocol import DataSpec, LeaseReply, LeaseRequest

_SMOOTHING: Final = 0.3
"""Weight of the newest slot in the mean time of one."""


class Slots:
    """See the module's docstring."""

    def __init__(self, holder: str, data: DataSpec) -> None:
        self._holder = holder
        self._data = data
        self._ahead: deque[tuple[int, int]] = deque()  # fence, slot
        self._working: tuple[int, int] | None = None
        self._done: list[tuple[int, int, int]] = []
        self._returned: set[int] = set()
        self._failed: list[tuple[int, int]] = []
        self._since = time.monotonic()
        self._slot_seconds: float | None = None

    @property
    def ahead(self) -> int:
        """Slots that are leased and not begun."""
        return len(self._ahead)

    def take(self, reply: LeaseReply) -> None:
        """Take in a lease."""
        if reply.fence is not None:
            self._ahead += ((reply.fence, slot) for slot in range(reply.start, reply.stop))

    def begin(self) -> int:
        """The next slot."""
        self._working = self._ahead.popleft()
        self._since = time.monotonic()
        return self._working[1]

    def end(self) -> None:
        """The slot in work has been applied."""
        assert self._working is not None, "no slot is being worked on"
        fence, slot = self._working
        self._working = None
        if self._done and self._done[-1][0] == fence and self._done[-1][2] == slot:
            self._done[-1] = (fence, self._done[-1][1], slot + 1)
        else:
            self._done.append((fence, slot, slot + 1))
        spent, before = time.monotonic() - self._since, self._slot_seconds
        mixed = spent if before is None else _SMOOTHING * spent + (1 - _SMOOTHING) * before
        self._slot_seconds = mixed

    def give_back(self, *, failed: bool = False) -> None:
        """Give back all that is held; ``failed``: the slot in work made the program fail."""
        held = [*self._ahead, *([self._working] if self._working else [])]
        if failed and self._working is not None:
            self._failed.append(self._working)
        self._returned |= {fence for fence, _ in held}
        self._ahead.clear()
        self._working = None

    def request(self, max_slots: int) -> LeaseRequest:
        """What is to be said about all this; until `said`, it is said again."""
        held = {fence for fence, _ in self._ahead}
        if self._working is not None:
            held.add(self._working[0])
        return LeaseRequest(
            holder=self._holder,
            data=self._data,
            max_slots=max_slots,
            completed=tuple(self._done),
            failed=tuple(self._failed),
            returned=tuple(sorted(self._returned)),
            held=tuple(sorted(held)),
            slot_seconds=self._slot_seconds,
        )

    def said(self) -> None:
        """The trainer has heard it."""
        self._done.clear()
        self._failed.clear()
        self._returned.clear()
