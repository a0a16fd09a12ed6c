"""Which nodes a pod may be bound to, whatever they have free.

A node that has as many pods as its kubelet takes is eligible for no more; so is one that is
shunned, for a while, because it did not take what was placed on it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.scheduler.eligibility import NodeTraits, allows
from penstock.scheduler.node_table import Flags, NodeTable, Rows
from penstock.scheduler.request import ANYWHERE, Constraints


class NodeEligibility:
    """What is known of a table's rows beside their resources."""

    def __init__(self, columns: NodeTable) -> None:
        self._columns = columns
        self._traits: dict[int, NodeTraits] = {}
        self._tainted: set[int] = set()
        self._full: set[int] = set()
        self._shunned: dict[str, float] = {}

    @property
    def shunned(self) -> Mapping[str, float]:
        """The nodes on which nothing is placed for a while, and until when."""
        return self._shunned

    def set_traits(self, row: int, traits: NodeTraits, *, tainted: bool) -> None:
        """What a node demands of its pods."""
        self._traits[row] = traits
        (self._tainted.add if tainted else self._tainted.discard)(row)

    def set_full(self, row: int, full: bool) -> None:
        """Whether a node takes no more pods."""
        (self._full.add if full else self._full.discard)(row)

    def drop(self, row: int) -> None:
        """A row is no node any more; who is shunned stays so if it comes back."""
        self._traits.pop(row, None)
        self._tainted.discard(row)
        self._full.discard(row)

    def shun(self, name: str, until_seconds: float) -> None:
        """Place nothing on a node for a while: it did not take what was placed there."""
        self._shunned[name] = until_seconds
        self._touch(name)

    def expire(self, now_seconds: float) -> None:
        """Let go of the nodes that were shunned long enough."""
        for name in [name for name, until in self._shunned.items() if until <= now_seconds]:
            del self._shunned[name]
            self._touch(name)

    def _touch(self, name: str) -> None:
        if name in self._columns:
            self._columns.touch(self._columns.row(name))

    def eligible(self, constraints: Constraints, rows: Rows) -> Flags:
        """Which rows a pod with these constraints may be bound to."""
        anywhere = constraints is ANYWHERE or constraints == ANYWHERE
        if anywhere and not (self._full or self._shunned or self._tainted):
            return np.ones(len(rows), dtype=np.bool_)
        closed = list(self._full)
        closed += [self._columns.row(name) for name in self._shunned if name in self._columns]
        if anywhere:
            closed += self._tainted_hard() if self._tainted else ()
            if not closed:
                return np.ones(len(rows), dtype=np.bool_)
            return ~np.isin(rows, closed)
        traits = self._traits
        allowed = np.fromiter(
            (row in traits and allows(traits[row], constraints) for row in rows.tolist()),
            dtype=np.bool_,
            count=len(rows),
        )
        return allowed & ~np.isin(rows, closed) if closed else allowed

    def _tainted_hard(self) -> list[int]:
        return [row for row in self._tainted if not allows(self._traits[row], ANYWHERE)]
