"""What is known of the program's objects, by which object it is and not by what it is equal to.

A loader of the program may have an equality of its own, and no hash. What is known of an object
goes with it.
"""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

Known = TypeVar("Known")


class ByIdentity(Generic[Known]):
    """A map whose keys are objects that others hold."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Known]] = {}

    def get(self, key: Any) -> Known | None:
        """What is known of an object; None: nothing."""
        refers, known = self._known.get(id(key), (None, None))
        return known if refers is not None and refers() is key else None

    def put(self, key: Any, known: Known) -> None:
        """Know something of an object, as long as it is there."""
        number = id(key)

        def forget(gone: weakref.ref[Any]) -> None:
            kept = self._known.get(number)
            if kept is not None and kept[0] is gone:  # else the number is another's by now
                del self._known[number]

        self._known[number] = weakref.ref(key, forget), known

    def __len__(self) -> int:
        return len(self._known)
