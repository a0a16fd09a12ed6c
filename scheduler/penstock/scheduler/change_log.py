"""Which rows of a table have changed: a bounded log, for whoever caches something per row."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_LENGTH_PER_ROW: Final = 8  # a cache that is further behind starts anew


class ChangeLog:
    """The numbers of changed rows in their order, with the oldest forgotten."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._start = 0

    @property
    def position(self) -> int:
        """Where the log ends now."""
        return self._start + len(self._rows)

    def add(self, row: int, capacity: int) -> None:
        """Note that something about a row of a table with so many rows has changed."""
        self._rows.append(row)
        if len(self._rows) > _LENGTH_PER_ROW * capacity:
            half = len(self._rows) // 2
            del self._rows[:half]
            self._start += half

    def clear(self) -> None:
        """Forget everything: whoever asks from now on starts anew."""
        self._start += len(self._rows) + 1
        self._rows.clear()

    def since(self, position: int) -> NDArray[np.intp] | None:
        """The rows changed since a `position`, each once; None where the log no longer knows."""
        if position < self._start:
            return None
        changed = self._rows[position - self._start :]
        if len(changed) < 2:
            return np.array(changed, dtype=np.intp)
        return np.array(list(dict.fromkeys(changed)), dtype=np.intp)
