"""The copy of its parameters that a server keeps for the chief to read, or is making.

A copy is made on a thread of its own while the parameters are frozen. Whoever lets them change
withdraws the order for it first: what was copied from then on would be torn, and counts for
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.parameter_server.server.storage.lock import Lock
from penstock.parameter_server.server.storage.store import Store


class Snapshots:
    """One copy at a time; everything here is called with the lock held."""

    def __init__(self, lock: Lock, changed: Callable[[], None]) -> None:
        """``changed``: called, without the lock, when a copy is there or cannot be made."""
        self._lock = lock
        self._changed = changed
        self._kept: tuple[int, Store] | None = None
        self._ordered: tuple[int, Store] | None = None  # number, and what is being copied
        self.trouble = ""
        """Why there is no copy."""

    @property
    def number(self) -> int | None:
        """That of the copy that is kept."""
        return self._kept[0] if self._kept is not None else None

    def get(self, number: object) -> Store | None:
        """The copy of this number."""
        return self._kept[1] if self._kept is not None and self._kept[0] == number else None

    def withdraw(self) -> None:
        """The parameters change from now on."""
        self._ordered, self.trouble = None, ""

    def order(self, number: int | None, frozen: Store | None) -> None:
        """Keep the copy of this number alone; make it of what is frozen, if it is not there."""
        if number is None:
            self._kept = self._ordered = None
            return
        if self.number == number:
            return
        self._kept = None
        if frozen is None or (self._ordered is not None and self._ordered[0] == number):
            return
        self._ordered = order = (number, frozen)
        threading.Thread(
            target=self._make, args=(order,), name="penstock-copy", daemon=True
        ).start()

    def _make(self, order: tuple[int, Store]) -> None:
        try:
            copy = order[1].snapshot()
        except MemoryError:
            copy = None
        with self._lock:
            if self._ordered is not order:
                return  # it was withdrawn, whether or not the same is ordered again
            if copy is None:
                self.trouble = "no memory for a copy of its parameters"
            else:
                self._kept, self._ordered = (order[0], copy), None
        self._changed()
