"""The best row by states: what a placement costs depends on the states there are, not on the nodes.

For policies whose score is how much a request lowers a potential
(`penstock.scheduler.placement.policy.PlacementPolicy.potential`). For each shape the state is kept
in which it leaves every state, which holds for good; with new prices the potential of each state
is computed once, and the scores of a shape are differences of two of them.

Guarantee: the row found is the one that scoring every row and choosing among the best would find
(`tests/scheduler/placement/test_state_search.py`). Where that is not sure, because a row that
counts has not the memory, or where it would cost more than to look at the rows, as so many states
are new or so few nodes alike, this is said.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

import numpy as np

from penstock.scheduler.node_table import Floats, Integers, Nodes, NodeTable
from penstock.scheduler.placement.node_states import IMPOSSIBLE, NodeStates
from penstock.scheduler.placement.state_index import Eligible, StateIndex
from penstock.scheduler.request import Constraints, Request

MOST_INDEXES: Final = 8
"""Different constraints whose rows are kept by state."""

ROWS_PER_STATE: Final = 3
"""Where rows share states less than that, looking at states gains nothing."""

LEARNT_PER_LOOK: Final = 24
"""States that a shape learns for each look: scoring rows instead costs as much."""

LEARNT_AT_ONCE: Final = 256
_MOST_CREDIT: Final = 4096
_LEAST_PAUSE: Final = 8
_MOST_PAUSE: Final = 4096
_PAUSE_OF_ALL: Final = 1024
_LEAST_STATES: Final = 8192
_STATES_PER_PRESENT: Final = 8


class Potential(Protocol):
    """What is asked of a policy."""

    @property
    def epsilon(self) -> float:
        """Scores that close to the best count as equal to it."""

    def burden(self, nodes: Nodes) -> Floats:
        """How much each node is to be spared: a request scores by how much it lowers it."""


class UnsureError(Exception):
    """The states do not tell which row is the best, or it would cost more than to look at rows."""


class _Shape:
    """A request: in which state it leaves each state, and how it scores there."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.credit = LEARNT_AT_ONCE
        self.pause = 0
        """Looks for which rows are scored, since states did not tell; twice as many each time."""
        self.paused = 0
        self.used = 0
        """When it was looked at last, in looks."""
        self.start_anew(None)

    def start_anew(self, index: StateIndex | None) -> None:
        """Forget what was learnt, for the states of another index."""
        self.index = index
        self.seen = -1
        """Position in the log of the index."""
        self.version = -1
        """Of the potential that the scores are of."""
        self.known = bytearray()
        self.after: Integers = np.empty(0, dtype=np.int64)
        self.scores: Floats = np.empty(0)

    def grow(self, capacity: int) -> None:
        """Make room for so many states."""
        more = capacity - len(self.known)
        if more > 0:
            self.known += bytes(more)
            self.after = np.concatenate((self.after, np.full(more, IMPOSSIBLE)))
            self.scores = np.concatenate((self.scores, np.full(more, -np.inf)))

    def not_told(self) -> None:
        """States did not tell: leave them alone for a while."""
        self.pause = self.paused = min(_MOST_PAUSE, max(_LEAST_PAUSE, 2 * self.pause))


class StateSearch:
    """Finds rows for requests for whole devices, or for none."""

    def __init__(
        self,
        columns: NodeTable,
        policy: Potential,
        eligible: Eligible | None,
        max_shapes: int,
    ) -> None:
        self._columns = columns
        self._policy = policy
        self._eligible = eligible
        self._max_shapes = max_shapes
        self._shapes: dict[Request, _Shape] = {}
        self._looks = 0
        self._version = 0
        self._paused = 0
        self._start_anew()

    def forget(self) -> None:
        """The policy judges differently from now on."""
        self._version += 1
        self._judged = 0

    def find(self, request: Request) -> tuple[int, float] | None:
        """The best row and its score; None where the request fits nowhere.

        Raises:
            UnsureError: the states do not tell.
        """
        if self._paused:
            self._paused -= 1
            raise UnsureError
        shape = self._shape(request)
        index = self._synced(shape)
        self._learn(shape, index)
        size = len(self._states)
        if not size:
            return None
        scores = shape.scores[:size] + index.absent[:size]
        top = int(scores.argmax())
        best = float(scores[top])
        if best == -np.inf:
            return None
        (close,) = (scores >= best - self._policy.epsilon).nonzero()
        first = index.first
        state = top
        if len(close) > 1:
            free = self._states.free_accelerator_milli[close]
            close = close[free == np.minimum.reduce(free)]
            state = int(close[first[close].argmin()])
        row = index.row_at(int(first[state]))
        memory, needed = self._columns.free_memory_bytes, request.memory_bytes
        if memory[row] < needed or memory[index.row_at(int(first[top]))] < needed:
            shape.not_told()
            raise UnsureError
        shape.pause = 0
        return row, float(scores[state])

    def _start_anew(self) -> None:
        self._states = NodeStates(self._columns.device_free.shape[1])
        self._indexes: OrderedDict[Constraints, StateIndex] = OrderedDict()
        self._burdens: Floats = np.empty(0)
        self._judged = 0
        for shape in self._shapes.values():
            shape.start_anew(None)

    def _shape(self, request: Request) -> _Shape:
        """What is known of a request, which counts as looked at once more."""
        shape = self._shapes.get(request)
        if shape is None:
            if len(self._shapes) >= self._max_shapes:
                del self._shapes[min(self._shapes, key=lambda one: self._shapes[one].used)]
            shape = self._shapes[request] = _Shape(request)
        self._looks += 1
        shape.used = self._looks
        if shape.paused:
            shape.paused -= 1
            raise UnsureError
        shape.credit = min(_MOST_CREDIT, shape.credit + LEARNT_PER_LOOK)
        return shape

    def _synced(self, shape: _Shape) -> StateIndex:
        """The index of a shape's constraints, which is up to date and worth being looked at."""
        states, columns = self._states, self._columns
        index = shape.index
        if states.devices != columns.device_free.shape[1] or (
            index is not None and len(states) > _LEAST_STATES + _STATES_PER_PRESENT * index.present
        ):
            self._start_anew()
            index = None
        if index is None or index.gone:
            index = self._index(shape.request.constraints)
            shape.start_anew(index)
        if not index.sync():
            raise UnsureError
        if ROWS_PER_STATE * index.present > len(columns):
            self._paused = _PAUSE_OF_ALL
            raise UnsureError
        return index

    def _index(self, constraints: Constraints) -> StateIndex:
        index = self._indexes.get(constraints)
        if index is None:
            index = StateIndex(self._columns, self._states, constraints, self._eligible)
            self._indexes[constraints] = index
            if len(self._indexes) > MOST_INDEXES:
                _, oldest = self._indexes.popitem(last=False)
                oldest.gone = True
        return index

    def _learn(self, shape: _Shape, index: StateIndex) -> None:
        """Bring a shape's scores up to date with the states that are present now.

        Raises:
            UnsureError: there are more new ones than are learnt at once.
        """
        states, known = self._states, shape.known
        room = len(known)
        fresh = [one for one in index.appeared(shape.seen) if one >= room or not known[one]]
        if len(fresh) > shape.credit:
            raise UnsureError
        shape.credit -= len(fresh)
        shape.seen = index.end
        if fresh:
            request = shape.request
            kinds = request.accelerator_kinds
            codes = self._columns.kinds.codes(kinds) if kinds else None
            after = [states.after(one, request, codes) for one in fresh]
            shape.grow(states.capacity)
            shape.after[fresh] = after
            for one in fresh:
                shape.known[one] = 1
        if len(states) > len(index.absent):
            index.grow()
        if len(states) > len(shape.known):
            shape.grow(states.capacity)
        if self._judged < len(states):
            self._judge()
        burdens = self._burdens
        changed: list[int] | slice = fresh
        if shape.version != self._version:
            shape.version = self._version
            changed = slice(len(states))
        elif not fresh:
            return
        own = shape.after[changed]
        shape.scores[changed] = np.where(
            own == IMPOSSIBLE, -np.inf, burdens[changed] - burdens[own]
        )

    def _judge(self) -> None:
        """Compute the potential of the states that have none yet."""
        states = self._states
        size = len(states)
        if len(self._burdens) < states.capacity:
            grown = np.zeros(states.capacity)
            grown[: self._judged] = self._burdens[: self._judged]
            self._burdens = grown
        self._burdens[self._judged : size] = self._policy.burden(states.nodes(self._judged))
        self._judged = size
