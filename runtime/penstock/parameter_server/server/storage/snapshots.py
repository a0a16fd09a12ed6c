"""The copy of its parameters that a server keeps for the chief to read, or is making.

A copy is made on a thread of its own while the parameters are frozen. Whoever lets them change
withdraws the order for it first: what was copied from then on would be torn, and counts for
nothing. Where the pod has no memory to spare for a copy none is made, and that is said: the server
lives, and the parameters themselves are read while they are frozen.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from penstock.data.spare_memory import SpareMemory
from penstock.parameter_server.server.storage.lock import Lock
from penstock.parameter_server.server.storage.store import Store


class Snapshots:
    """One copy at a time; everything here is called with the lock held."""

    def __init__(
        self, lock: Lock, changed: Callable[[], None], room: SpareMemory | None = None
    ) -> None:
        """Nothing is copied yet.

        Args:
            lock: that guards all this.
            changed: called, without the lock, when a copy is there or cannot be made.
            room: for copies; None: what the pod has.
        """
        self._room = room or SpareMemory()
        self._lock = lock
        self._changed = changed
        self._kept: tuple[int, Store] | None = None
        self._ordered: tuple[int, Store] | None = None  # number, and what is being copied
        self.trouble = ""
        """Why there is no copy."""
        self.uncopied: int | None = None
        """The number of the one for which there is no memory."""

    @property
    def number(self) -> int | None:
        """That of the copy that is kept."""
        return self._kept[0] if self._kept is not None else None

    def get(self, number: object) -> Store | None:
        """The copy of this number."""
        return self._kept[1] if self._kept is not None and self._kept[0] == number else None

    def withdraw(self) -> None:
        """The parameters change from now on, or another copy is wanted."""
        self._ordered, self.uncopied, self.trouble = None, None, ""

    def order(self, number: int | None, frozen: Store | None) -> None:
        """Keep the copy of this number alone; make it of what is frozen, if it is not there."""
        if number is None:
            self.withdraw()
            self._kept = None
            return
        if self.number == number:
            return
        self._kept = None
        if frozen is None or (self._ordered is not None and self._ordered[0] == number):
            return
        self.withdraw()
        self._ordered = order = (number, frozen)
        threading.Thread(
            target=self._make, args=(order,), name="penstock-copy", daemon=True
        ).start()

    def _make(self, order: tuple[int, Store]) -> None:
        size = order[1].bytes
        copy = self._copy(order[1], size)
        with self._lock:
            if self._ordered is not order:
                return  # it was withdrawn, whether or not the same is ordered again
            if copy is None:
                self.trouble = f"no memory for a copy of its parameters, {size / 1e6:.0f} MB"
                self.uncopied = order[0]
            else:
                self._kept, self._ordered = (order[0], copy), None
        self._changed()

    def _copy(self, frozen: Store, size: int) -> Store | None:
        """A copy; None where there is no memory for it."""
        if not self._room.take(size):
            return None
        try:
            copy = frozen.snapshot()
        except MemoryError:
            self._room.give_back(size)
            return None
        weakref.finalize(copy, self._room.give_back, size).atexit = False
        return copy
