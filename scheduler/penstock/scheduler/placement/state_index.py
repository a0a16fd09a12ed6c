"""Which rows are in which state, in the order of their names: the rows of one kind of pod.

Rows are those that are schedulable and that pods with some constraints may run on; their memory is
not looked at. A change of a row moves it from one state to another, which costs the logarithm of
the rows there; where a row came or went the index is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

import numpy as np

from penstock.scheduler.node_table import Flags, Floats, Integers, NodeTable, Rows
from penstock.scheduler.placement.node_states import NodeStates
from penstock.scheduler.request import ANYWHERE, Constraints

Eligible = Callable[[Constraints, Rows], Flags]

NOBODY: Final = np.iinfo(np.int64).max
"""In place of the first rank of a state that no row is in."""

ROWS_PER_LOOK: Final = 25
"""Rows that are put in order for each look that wanted it: looking at rows costs as much."""

_NOWHERE: Final = -1
_MOST_EVENTS: Final = 65_536
_SPARE: Final = 64


class StateIndex:
    """Rows by state.

    Attributes:
        absent: 0 for states that a row is in, and minus infinity for others: added to scores it
            leaves those of present states.
        first: by state, the rank of its first row in the order of names.
    """

    def __init__(
        self,
        columns: NodeTable,
        states: NodeStates,
        constraints: Constraints,
        eligible: Eligible | None,
    ) -> None:
        self._columns = columns
        self._states = states
        self._constraints = constraints
        self._eligible = eligible
        self._events: list[int] = []
        self._begin = 0
        self._present = 0
        self._built = False
        self._looks = 0
        self._position = 0
        self._rank: Integers = np.empty(0, dtype=np.int64)
        self._row_of_rank: list[int] = []
        self._rank_of_row: list[int] = []
        self._state_of_row: list[int] = []
        self._ranks: list[list[int]] = []
        self._counts: list[int] = []
        self.gone = False
        """Whether others have taken its place: nobody keeps it up to date."""
        self.first: Integers = np.empty(0, dtype=np.int64)
        self.absent: Floats = np.empty(0)

    @property
    def present(self) -> int:
        """How many states a row is in."""
        return self._present

    @property
    def end(self) -> int:
        """Where the log of states that became present ends now."""
        return self._begin + len(self._events)

    def appeared(self, since: int) -> Sequence[int]:
        """The states that became present since a position of the log; all that are, where the log
        no longer knows."""
        if since < self._begin:
            return np.flatnonzero(self.absent == 0).tolist()
        return self._events[since - self._begin :]

    def row_at(self, rank: int) -> int:
        """The row of a rank in the order of names."""
        return self._row_of_rank[rank]

    def sync(self) -> bool:
        """Take over what has changed. Whether that was done: where rows came or went, only once it
        has been asked for often enough."""
        columns = self._columns
        changes = columns.changes
        self._looks += 1
        known = self._built and columns.name_rank() is self._rank
        changed = changes.since(self._position) if known else None
        if changed is None:
            anyhow = not self._built and self._constraints == ANYWHERE
            if not anyhow and self._looks * ROWS_PER_LOOK < len(columns):
                return False
            self._build()
            self._looks = 0
            return True
        self._position = changes.position
        if len(changed):
            allowed = self._allowed(changed).tolist()
            for row, allows in zip(changed.tolist(), allowed, strict=True):
                self._move(row, self._states.number(columns, row) if allows else _NOWHERE)
        return True

    def _allowed(self, rows: Rows) -> Flags:
        allowed: Flags = self._columns.schedulable[rows]
        if self._eligible is not None:
            allowed &= self._eligible(self._constraints, rows)
        return allowed

    def _build(self) -> None:
        columns, states = self._columns, self._states
        self._rank = columns.name_rank()
        self._position = columns.changes.position
        rows = columns.rows()
        rows = rows[np.argsort(self._rank[rows])]
        self._row_of_rank = rows.tolist()
        self._rank_of_row = self._rank.tolist()
        self._state_of_row = [_NOWHERE] * columns.capacity
        self._ranks = []
        self._counts = []
        self.first = np.empty(0, dtype=np.int64)
        self.absent = np.empty(0)
        self._present = 0
        self._built = True
        self._begin += len(self._events) + 1  # whoever knows the log of before starts anew
        self._events.clear()
        for row, allows in zip(rows.tolist(), self._allowed(rows).tolist(), strict=True):
            if allows:
                self._move(row, states.number(columns, row))

    def grow(self) -> None:
        """Make room for every state that has a number."""
        more = self._states.capacity - len(self.first)
        if more > 0:
            self.first = np.concatenate((self.first, np.full(more, NOBODY)))
            self.absent = np.concatenate((self.absent, np.full(more, -np.inf)))
            self._ranks += ([] for _ in range(more))
            self._counts += [0] * more

    def _move(self, row: int, state: int) -> None:
        before = self._state_of_row[row]
        if state == before:
            return
        self._state_of_row[row] = state
        rank = self._rank_of_row[row]
        if before != _NOWHERE:
            self._leave(before, rank)
        if state != _NOWHERE:
            self._enter(state, rank)

    def _enter(self, state: int, rank: int) -> None:
        if state >= len(self._counts):
            self.grow()
        ranks = self._ranks[state]
        if len(ranks) > 2 * self._counts[state] + _SPARE:
            ranks[:] = sorted({one for one in ranks if self._is_in(one, state)} - {rank})
        heappush(ranks, rank)
        if rank < self.first[state]:
            self.first[state] = rank
        self._counts[state] += 1
        if self._counts[state] == 1:
            self._present += 1
            self.absent[state] = 0.0
            self._events.append(state)
            if len(self._events) > _MOST_EVENTS:
                half = _MOST_EVENTS // 2
                del self._events[:half]
                self._begin += half

    def _leave(self, state: int, rank: int) -> None:
        self._counts[state] -= 1
        if not self._counts[state]:
            self._present -= 1
            self.absent[state] = -np.inf
            self.first[state] = NOBODY
            self._ranks[state].clear()
        elif self.first[state] == rank:
            ranks = self._ranks[state]
            while not self._is_in(ranks[0], state):  # gone since, or there twice
                heappop(ranks)
            self.first[state] = ranks[0]

    def _is_in(self, rank: int, state: int) -> bool:
        return self._state_of_row[self._row_of_rank[rank]] == state
