"""What a data worker keeps of samples that jobs with one common order ask for in turn: pure.

In a common order a sample is the same for everybody, bit by bit, whoever makes it and however
often: it is named by the epoch's seed and its index. So nothing has to be agreed upon; what was
made is kept as long as there is room, and is made again for those who come after that.

Guarantees: what is kept is within the window, but for one entry that is larger; where room is short
what all members have had goes first, and then the oldest.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

MAX_GONE: Final = 1 << 20
"""Entries that went for want of room, of which it is known that they were there."""


@dataclass(slots=True)
class _Entry:
    size: int
    had: set[str] = field(default_factory=set)


class Memo:
    """See the module's docstring. ``window``: bytes."""

    def __init__(self, window: int) -> None:
        """Raises ValueError: no room."""
        if window < 1:
            raise ValueError(f"window: {window}; at least 1")
        self.window = window
        self.made = self.taken = self.evicted = 0
        self.held_bytes = 0
        self._members: set[str] = set()
        self._kept: dict[Hashable, _Entry] = {}
        self._spent: dict[Hashable, None] = {}  # that every member has had
        self._gone: dict[Hashable, None] = {}
        self._dropped: list[Hashable] = []

    @property
    def members(self) -> frozenset[str]:
        """Who shares now."""
        return frozenset(self._members)

    @property
    def kept(self) -> frozenset[Hashable]:
        """The names of what is here."""
        return frozenset(self._kept)

    def join(self, member: str) -> None:
        """A member is there, of whom nothing is known to have been had."""
        if member not in self._members:
            self._members.add(member)
            self._spent.clear()

    def leave(self, member: str) -> None:
        """A member has ended."""
        self._members.discard(member)
        for name, entry in self._kept.items():
            entry.had.discard(member)
            self._note_spent(name)

    def has(self, name: Hashable) -> bool:
        """Whether something is here."""
        return name in self._kept

    def is_gone(self, name: Hashable) -> bool:
        """Whether something was here, and went for want of room."""
        return name in self._gone

    def note_had(self, member: str, name: Hashable) -> None:
        """A member gets what is here, or was made for it just now."""
        self.taken += 1
        if (entry := self._kept.get(name)) is not None:
            entry.had.add(member)
            self._note_spent(name)

    def put(self, name: Hashable, size: int) -> None:
        """Something is made, and kept for the others if there is room."""
        self.made += 1
        self._gone.pop(name, None)
        self._kept[name] = _Entry(size)
        self.held_bytes += size
        self._make_room()

    def resize(self, window: int) -> None:
        """From now on so many bytes; what does not fit is dropped."""
        self.window = max(1, window)
        self._make_room()

    def _make_room(self) -> None:
        while self.held_bytes > self.window and len(self._kept) > 1:
            if self._spent:
                self._drop(next(iter(self._spent)))
                continue
            oldest = next(iter(self._kept))
            self._drop(oldest)
            self.evicted += 1
            self._gone[oldest] = None
            while len(self._gone) > MAX_GONE:
                del self._gone[next(iter(self._gone))]

    def take_dropped(self) -> list[Hashable]:
        """What is kept no more, of which the last call did not tell."""
        found, self._dropped = self._dropped, []
        return found

    def _note_spent(self, name: Hashable) -> None:
        if self._members <= self._kept[name].had:
            self._spent[name] = None

    def _drop(self, name: Hashable) -> None:
        self.held_bytes -= self._kept.pop(name).size
        self._spent.pop(name, None)
        self._dropped.append(name)

    def check_invariants(self) -> None:
        """Assert what is guaranteed: for tests, after every event."""
        assert self.held_bytes == sum(entry.size for entry in self._kept.values())
        assert self.held_bytes <= self.window or len(self._kept) == 1
        for name, entry in self._kept.items():
            assert (name in self._spent) == (self._members <= entry.had)
