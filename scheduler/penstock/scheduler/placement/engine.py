"""The placement engine: places requests one after the other and remembers scores per shape.

Equal requests score equally, and a placement changes one row; so each shape keeps its scores, and
before a choice only the rows that changed since its last one are scored again. Where a policy's
scores depend on CPU and devices alone, each state that rows are in is scored once
(`penstock.scheduler.row_states`), and where they are differences of a potential, the best row is
looked for by states (`penstock.scheduler.placement.state_search`). The number of remembered shapes
is bounded; the one that was not used for longest is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from penstock.scheduler.node_table import Flags, Floats, NodeTable, Rows
from penstock.scheduler.placement.feasible import fits, has_processors, takes, usable_slots
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.placement.state_search import StateSearch, UnsureError
from penstock.scheduler.request import Constraints, Request
from penstock.scheduler.row_states import RowStates

MAX_SHAPES: Final = 512
"""Shapes whose scores are remembered at once."""

Eligible = Callable[[Constraints, Rows], Flags]
"""Which rows a pod with these constraints may run on, whatever it asks for."""


class Preference(Protocol):
    """Narrows down nodes that score about equally well, such as to those near the job."""

    @property
    def epsilon(self) -> float:
        """How far below the best score a node may be and still be considered."""

    def narrow(self, columns: NodeTable, candidates: Rows) -> Rows:
        """The candidates to prefer: at least one of them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request went, and what would have been next best."""

    node: str
    row: int
    devices: tuple[int, ...]
    score: float
    runner_up: str | None = None
    runner_up_score: float | None = None


@dataclass(slots=True)
class _Scores:
    values: Floats
    """Of each row."""
    position: int
    of_state: Floats
    """Of each state of rows that was met, as far as CPU and devices decide; NaN: not computed."""


class Placer:
    """Places requests on columns by a policy. It takes what it places, unless asked to only look.

    Guarantee: no placement takes a node's free resources below zero.
    """

    def __init__(
        self,
        columns: NodeTable,
        policy: PlacementPolicy,
        *,
        eligible: Eligible | None = None,
        max_shapes: int = MAX_SHAPES,
    ) -> None:
        self.columns = columns
        self.policy = policy
        self._eligible = eligible
        self._max_shapes = max_shapes
        self._scores: OrderedDict[Request, _Scores] = OrderedDict()
        self._states = RowStates(columns)
        self._search = (
            StateSearch(columns, policy, eligible, max_shapes) if policy.potential else None
        )

    def observe(self, request: Request) -> None:
        """Count a request as asked for, whether or not this engine is to place it."""
        if self.policy.observe(self.columns, request):
            self.forget()

    def choose(self, request: Request, preference: Preference | None = None) -> Placement | None:
        """Count a request as asked for, and say where it should go; takes nothing."""
        self.observe(request)
        return self.look(request, preference)

    def place(self, request: Request, preference: Preference | None = None) -> Placement | None:
        """Put a request on the best node and take its resources; None where it fits nowhere."""
        placement = self.choose(request, preference)
        if placement is not None:
            self.columns.take(placement.row, request, placement.devices)
        return placement

    def place_all(self, requests: Iterable[Request]) -> list[Placement | None]:
        """Place a batch in the order given."""
        return [self.place(request) for request in requests]

    def look(
        self,
        request: Request,
        preference: Preference | None = None,
        *,
        with_runner_up: bool = False,
    ) -> Placement | None:
        """Where `place` would put the request now; takes nothing.

        A preference chooses among the nodes whose score is within its own `epsilon` of the best.
        """
        by_states = preference is None and not with_runner_up and not request.is_share
        if by_states and self._search is not None:
            try:
                found = self._search.find(request)
            except UnsureError:
                pass
            else:
                return self._found(found, request)
        scores = self.scores(request)
        best = float(scores.max(initial=-np.inf))
        if best == -np.inf:
            return None
        epsilon = self.policy.epsilon if preference is None else preference.epsilon
        candidates = np.flatnonzero(scores >= best - epsilon)
        if preference is not None:
            candidates = preference.narrow(self.columns, candidates)
        row = self.policy.choose(self.columns, request, candidates)
        node = self.columns.names[row]
        devices = self._devices(request, row)
        if not with_runner_up:
            return Placement(node, row, devices, float(scores[row]))
        name, score = self._runner_up(request, scores, row)
        return Placement(node, row, devices, float(scores[row]), name, score)

    def _found(self, found: tuple[int, float] | None, request: Request) -> Placement | None:
        if found is None:
            return None
        row, score = found
        return Placement(self.columns.names[row], row, self._devices(request, row), score)

    def scores(self, request: Request) -> Floats:
        """The score of every row now; minus infinity where the request does not fit. Read-only."""
        if self._states.crowded:
            self._states.clear()
            self.forget()
        known = self._scores.get(request)
        changed = None if known is None else self.columns.changes.since(known.position)
        if known is None or changed is None or len(known.values) != self.columns.capacity:
            known = _Scores(np.full(self.columns.capacity, -np.inf), 0, np.empty(0))
            self._scores[request] = known
            changed = self.columns.rows()
            if len(self._scores) > self._max_shapes:
                self._scores.popitem(last=False)
        else:
            self._scores.move_to_end(request)
        known.position = self.columns.changes.position
        if len(changed):
            self._rescore(request, known, changed)
        return known.values

    @property
    def remembered(self) -> int:
        """How many shapes have scores at hand."""
        return len(self._scores)

    def forget(self) -> None:
        """Drop every remembered score: what a policy does when it judges differently from now."""
        self._scores.clear()
        if self._search is not None:
            self._search.forget()

    def _rescore(self, request: Request, known: _Scores, rows: Rows) -> None:
        if self.policy.by_state:
            found = self._by_state(request, known, rows)
            mask = takes(self.columns, request, rows)
        else:
            mask = fits(self.columns, request, rows)
            found = np.full(len(rows), -np.inf)
            found[mask] = self._scored(request, rows[mask])
        if self._eligible is not None:
            mask &= self._eligible(request.constraints, rows)
        known.values[rows] = np.where(mask, found, -np.inf)

    def _scored(self, request: Request, rows: Rows) -> Floats:
        return self.policy.score(self.columns, request, rows) if len(rows) else np.empty(0)

    def _by_state(self, request: Request, known: _Scores, rows: Rows) -> Floats:
        """Scores of rows by their states; what no row had before is computed for one of them."""
        states = self._states.of_rows(rows)
        count, of_state = len(self._states), known.of_state
        if len(of_state) < count:
            known.of_state = np.full(2 * count, np.nan)
            known.of_state[: len(of_state)] = of_state
            of_state = known.of_state
        found = of_state[states]
        unknown = np.isnan(found)
        if unknown.any():
            one_of = np.full(count, -1, dtype=np.intp)
            one_of[states[unknown]] = rows[unknown]
            new = np.flatnonzero(one_of >= 0)
            alike = one_of[new]
            fitting = has_processors(self.columns, request, alike)
            of_state[new] = -np.inf
            of_state[new[fitting]] = self._scored(request, alike[fitting])
            found = of_state[states]
        return found

    def _devices(self, request: Request, row: int) -> tuple[int, ...]:
        slots = usable_slots(self.columns, request, row)
        if request.is_share:
            return (self.policy.device(self.columns, request, row, slots),)
        return tuple(slots[: request.accelerators])

    def _runner_up(
        self, request: Request, scores: Floats, row: int
    ) -> tuple[str | None, float | None]:
        others = scores.copy()
        others[row] = -np.inf
        best = float(others.max(initial=-np.inf))
        if best == -np.inf:
            return None, None
        close = np.flatnonzero(others >= best - self.policy.epsilon)
        second = self.policy.choose(self.columns, request, close)
        return self.columns.names[second], float(others[second])
