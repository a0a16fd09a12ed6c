"""A model of Linux's page cache: two lists, and a shadow of what was dropped.

As `mm/swap.c` and `mm/workingset.c` say it: a file that is read comes into the inactive list; read
again there it moves to the active one. The oldest of the inactive list is dropped. That list is
filled from the oldest of the active one while it is the shorter of the two. A file that comes
back before as much has been dropped as the active list holds is taken for one of the working set,
and goes to the active list at once. Files count as one page each: all are of like size.
"""

from __future__ import annotations

from collections import OrderedDict


class TwoLists:
    """Room for so many files; at first there is nothing."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._inactive: OrderedDict[int, None] = OrderedDict()
        self._active: OrderedDict[int, None] = OrderedDict()
        self._dropped: OrderedDict[int, int] = OrderedDict()  # file: how many had been dropped
        self._drops = 0

    def read(self, file: int) -> bool:
        """Whether it was there."""
        if file in self._active:
            return True  # its place in that list is that of its activation
        if file in self._inactive:
            del self._inactive[file]
            self._active[file] = None
            return True
        if self._room:
            self._take_in(file)
        return False

    def _take_in(self, file: int) -> None:
        while len(self._inactive) + len(self._active) >= self._room:
            self._drop()
        at = self._dropped.pop(file, None)
        if at is not None and self._drops - at <= len(self._active):
            self._active[file] = None
        else:
            self._inactive[file] = None

    def _drop(self) -> None:
        while self._active and len(self._inactive) < len(self._active):
            oldest, _ = self._active.popitem(last=False)
            self._inactive[oldest] = None
        oldest, _ = (self._inactive or self._active).popitem(last=False)
        self._drops += 1
        self._dropped[oldest] = self._drops
        while len(self._dropped) > 2 * self._room:
            self._dropped.popitem(last=False)
