"""Sets of integers kept as sorted, disjoint, half-open ranges.

The ledger's state is a handful of such sets. Their size is the number of gaps, never the number of
integers, so a billion consumed slots cost one pair.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""``(start, stop)`` with ``start < stop``; ``stop`` is not part of it."""


class RangeSet:
    """A set of integers as sorted, disjoint ranges that never touch each other."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __len__(self) -> int:
        """The number of ranges (not of integers: that is `total`)."""
        return len(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self._starts, value) - 1
        return at >= 0 and value < self._stops[at]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._starts == other._starts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment]  # Python's way to say unhashable

    def __repr__(self) -> str:
        return f"RangeSet({list(self)!r})"

    @property
    def total(self) -> int:
        """How many integers are in the set."""
        return sum(self._stops) - sum(self._starts)

    @property
    def watermark(self) -> int:
        """The least non-negative integer that is not in the set."""
        return self._stops[0] if self._starts and self._starts[0] == 0 else 0

    def add(self, start: int, stop: int) -> None:
        """Put ``start..stop`` in; what is in already stays."""
        if start >= stop:
            return
        low = bisect_left(self._stops, start)
        high = bisect_right(self._starts, stop)
        if low < high:
            start = min(start, self._starts[low])
            stop = max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def remove(self, start: int, stop: int) -> None:
        """Take ``start..stop`` out; what is not in it is no error."""
        if start >= stop:
            return
        low = bisect_right(self._stops, start)
        high = bisect_left(self._starts, stop)
        if low >= high:
            return
        starts, stops = [], []
        if self._starts[low] < start:
            starts.append(self._starts[low])
            stops.append(start)
        if self._stops[high - 1] > stop:
            starts.append(stop)
            stops.append(self._stops[high - 1])
        self._starts[low:high] = starts
        self._stops[low:high] = stops

    def covers(self, start: int, stop: int) -> bool:
        """Whether every integer of ``start..stop`` is in the set."""
        at = bisect_right(self._starts, start) - 1
        return start >= stop or (at >= 0 and stop <= self._stops[at])

    def overlaps(self, start: int, stop: int) -> bool:
        """Whether any integer of ``start..stop`` is in the set."""
        at = bisect_right(self._stops, start)
        return start < stop and at < len(self._starts) and self._starts[at] < stop

    def intersection(self, start: int, stop: int) -> list[Range]:
        """The parts of the set that lie within ``start..stop``."""
        found = []
        at = bisect_right(self._stops, start)
        while at < len(self._starts) and self._starts[at] < stop:
            found.append((max(start, self._starts[at]), min(stop, self._stops[at])))
            at += 1
        return found

    def first(self, count: int) -> Range | None:
        """The lowest range of the set, cut to at most ``count`` integers."""
        if not self._starts:
            return None
        start = self._starts[0]
        return start, min(self._stops[0], start + count)

    def copy(self) -> RangeSet:
        """An independent copy."""
        other = RangeSet()
        other._starts = self._starts.copy()
        other._stops = self._stops.copy()
        return other
