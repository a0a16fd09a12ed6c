"""Which rows of a table are alike: what is computed of one of them holds for all.

A cluster has thousands of nodes of a few kinds, and what is free on them are whole cores and whole
devices for the most part. So rows are in far fewer states than there are rows: a score that depends
on CPU and devices alone is computed once for each state and request.

Guarantee: two rows with one number have the same CPU and the same devices, in total and free, at
the time of the call. Numbers of states that no row has any more are not used again; when they are
many, all begin anew (`crowded`, `clear`), so memory is bounded by the size of the table.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.scheduler.node_table import Integers, NodeTable, Rows

_STATES_PER_ROW: Final = 4
_LEAST_STATES: Final = 4096


class RowStates:
    """Numbers of the states of a table's rows, from 0."""

    def __init__(self, columns: NodeTable) -> None:
        self._columns = columns
        self.clear()

    def clear(self) -> None:
        """Forget all numbers: what was kept by them holds no more."""
        self._numbers: dict[tuple[int, int, bytes, bytes], int] = {}
        self._of: Integers = np.empty(0, dtype=np.int64)
        self._position = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def crowded(self) -> bool:
        """Whether there are so many more numbers than rows that they are to be cleared."""
        return len(self._numbers) > _LEAST_STATES + _STATES_PER_ROW * self._columns.capacity

    def of_rows(self, rows: Rows) -> Integers:
        """The number of each row's state now."""
        changes = self._columns.changes
        if self._position != changes.position:
            known = len(self._of) == self._columns.capacity
            changed = changes.since(self._position) if known else None
            if changed is None:
                changed = np.arange(self._columns.capacity)
                self._of = np.empty(self._columns.capacity, dtype=np.int64)
            self._number(changed)
            self._position = changes.position
        return self._of[rows]

    def _number(self, rows: Rows) -> None:
        columns, numbers, of = self._columns, self._numbers, self._of
        total, cpu = columns.total_milli_cpu, columns.free_milli_cpu
        free, kind = columns.device_free, columns.device_kind
        for row in rows.tolist():
            key = (int(total[row]), int(cpu[row]), free[row].tobytes(), kind[row].tobytes())
            of[row] = numbers.setdefault(key, len(numbers))
