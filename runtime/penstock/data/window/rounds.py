"""Who gives a program which tiles of an epoch in free order: round by round; pure.

In the first round each data worker has a part of the tiles. What is left of the parts, too few for
a batch each, is one data worker's in the second, and the last batch, with the tile that has fewer
samples than others, is the third. When data workers come or go, the parts are dealt anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from penstock.data.ledger.tiles import TileLedger

Parts = dict[str, NDArray[np.bool_]]
"""The tiles of each data worker: bool of all tiles."""


class Round(IntEnum):
    """What is given out now; see the module's docstring."""

    PARTS = 0
    LEFT = 1
    LAST = 2


@dataclass(slots=True)
class Holder:
    """A data worker.

    Attributes:
        part: the tiles that it is to give in this round.
        left: tiles of its part that have not come.
        over: it has nothing more of them.
        ready: batches that lie there, as it says.
        asked: of it, and not come yet.
    """

    part: NDArray[np.bool_]
    left: int
    over: bool = False
    ready: int = 0
    asked: int = 0


class Rounds:
    """See the module's docstring.

    Attributes:
        round: what is given out now.
        holders: the data workers that have their parts.
    """

    def __init__(
        self,
        ledger: TileLedger,
        divide: Callable[[Collection[str]], Parts],
        short: int | None,
    ) -> None:
        """``divide``: parts by names; ``short``: the tile that has fewer samples than others."""
        self.round = Round.PARTS
        self.holders: dict[str, Holder] = {}
        self._ledger = ledger
        self._divide = divide
        self._short = short

    @property
    def over(self) -> bool:
        """Whether nobody has anything more of this round."""
        return bool(self.holders) and all(one.over for one in self.holders.values())

    def deal(self, names: Collection[str]) -> Parts:
        """The parts of the next round, or of this one where others are there than before.

        Those that have nothing are left out. After the last round there is something left where
        somebody erred, and the first comes again.
        """
        if self.over and set(self.holders) == set(names):
            self.round = Round((self.round + 1) % len(Round))
        dealt = self._dealt(names)
        self.holders = {
            name: Holder(part, int(np.count_nonzero(part))) for name, part in dealt.items()
        }
        for one in self.holders.values():
            one.over = not one.left
        return {name: one.part for name, one in self.holders.items() if not one.over}

    def _dealt(self, names: Collection[str]) -> Parts:
        lacks = self._ledger.lacks.copy()
        if self.round is not Round.LAST and self._short is not None:
            lacks[self._short] = False
        parts = self._divide(names)
        if self.round is Round.PARTS:
            return {name: part & lacks for name, part in parts.items()}
        # One has it all: the same one for everybody whose parts are the same.
        first = min(parts, key=lambda name: (int(np.flatnonzero(parts[name])[:1].sum()), name))
        nothing = np.zeros_like(lacks)
        return {name: lacks if name == first else nothing for name in parts}

    def forget(self) -> None:
        """What everybody is to give is another matter now."""
        self.holders.clear()

    def lose(self, name: str) -> None:
        """A data worker is gone."""
        self.holders.pop(name, None)
        if not self.holders:
            self.round = Round.PARTS

    def note_ready(self, name: str, batches: int) -> None:
        """A data worker says how many batches lie there."""
        if (one := self.holders.get(name)) is not None:
            one.ready = max(0, batches)

    def whom_to_ask(self, names: Sequence[str]) -> str:
        """Of some data workers, the one to be asked next.

        First one with whom a batch lies already, so that everybody goes through what there is, and
        something is made only where nothing lies anywhere that a loader lacks; then the one with
        the least to do. Of those alike the one that has most left to give: who keeps his way
        through all parts even is near to everybody else.
        """

        def order(name: str) -> tuple[bool, int, int]:
            one = self.holders.get(name)
            if one is None:
                return True, 0, 0
            return one.ready <= one.asked, one.asked, -one.left

        return min(names, key=order)
