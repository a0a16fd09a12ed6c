"""The batches of one epoch that jobs share in free order: any tiles next, each once.

A pure state machine like `penstock.data.window.reorder_buffer`, with the same methods for whoever
takes and brings batches. Here a step is a request, and has no samples of its own: a data worker
answers it with a batch of tiles of its part that this process lacks, whichever it has. Which those
are is known when it comes, and is noted in a `TileLedger`.

Who gives what says `penstock.data.window.rounds`. A new round begins when nothing is outstanding of
the one before.

What it guarantees, whatever arrives, twice or never: each tile is given to the program once in an
epoch; a data worker is asked only for tiles that nobody else was asked for; if there is nobody to
wait for, `take` says that the program must make a batch itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from penstock.data.ledger.tiles import TileLedger
from penstock.data.window.reorder_buffer import Failure, Need
from penstock.data.window.rounds import Parts, Round, Rounds

MAX_DEATHS: Final = 3
"""So many data workers may die one after the other without a batch; the program is to try then."""


@dataclass(frozen=True, slots=True)
class FreeOptions:
    """What a window is of.

    Attributes:
        batch_tiles: tiles to a batch.
        short: the tile that has fewer samples than others; None: there is none.
        keeps_rest: whether the last batch may have fewer tiles.
        divide: gives the parts of data workers by their names.
        more: whether the program has one more batch, of no tiles, to make at the end.
    """

    batch_tiles: int
    divide: Callable[[Collection[str]], Parts]
    short: int | None = None
    keeps_rest: bool = True
    more: bool = False


@dataclass(slots=True)
class _Asked:
    holder: str
    since: float
    count: int


@dataclass(slots=True)
class _Failed:
    """Tiles that a data worker could not make, and why: the program is to try."""

    tiles: list[int]
    failures: list[Failure] = field(default_factory=list)


class FreeWindow:
    """See the module's docstring.

    Attributes:
        ledger: what the program has had, and what has come.
        rounds: who is to give what.
        position: batches that the program has got.
        ahead: batches that may be under way.
        lost: none ever is.
    """

    def __init__(self, ledger: TileLedger, ahead: int, options: FreeOptions) -> None:
        self.ledger = ledger
        self.position = 0
        self.ahead = ahead
        self.lost = 0
        self._options = options
        self.rounds = Rounds(ledger, options.divide, options.short)
        self._asked: dict[int, _Asked] = {}
        self._ready: deque[tuple[list[int], Any]] = deque()
        self._failed: deque[_Failed] = deque()
        self._here: list[int] = []  # what the program makes now
        self._next = 0
        self._deaths = 0  # of data workers since a batch came
        self._more = options.more

    # ------------------------------------------------------------------ what there is to do

    @property
    def ready(self) -> int:
        """Batches that wait for the program."""
        return len(self._ready)

    @property
    def finished(self) -> bool:
        """Whether the program has got every batch."""
        if self._ready or self._asked or self._failed or self._here:
            return False
        return self._nothing_left and not self._more

    @property
    def divides_again(self) -> bool:
        """Whether a round is over, and there is something left for the next."""
        waits = self._asked or self._failed or self._here
        return self.rounds.over and not waits and not self._nothing_left

    @property
    def _nothing_left(self) -> bool:
        """Whether what is lacking, if anything, is no batch."""
        lacking = self.ledger.lacking
        return not lacking or (not self._options.keeps_rest and lacking < self._options.batch_tiles)

    def unmade_by(self, holder: str) -> int:
        """Batches that a holder was asked for and that have not come yet."""
        one = self.rounds.holders.get(holder)
        return 0 if one is None else one.asked

    def holders_beyond(self) -> set[str]:
        """Nobody is asked for much at once."""
        return set()

    def meet(self, names: Collection[str]) -> Parts:
        """These data workers are there now: what each is to be told that it is to give, if so.

        Nobody is told anything before all has come that was asked for in another division.
        """
        changed = set(self.rounds.holders) != set(names)
        if not names or self._asked or self._failed or self._here:
            return {}
        return self.rounds.deal(names) if changed or self.rounds.over else {}

    def ask(self, holder: str, now: float) -> tuple[int, int] | None:
        """A batch that a holder is to make: the number of the request, and how many tiles."""
        one = self.rounds.holders.get(holder)
        full = len(self._asked) + len(self._ready) >= self.ahead
        if one is None or one.over or full or self._deaths >= MAX_DEATHS:
            return None
        count = self._options.batch_tiles
        left = int(np.count_nonzero(one.part & self.ledger.lacks))
        asked = sum(each.count for each in self._asked.values() if each.holder == holder)
        if left - asked < count:
            if self.rounds.round is not Round.LAST or asked or not left:
                one.over = not asked
                return None
            if not self._options.keeps_rest:
                one.over = True
                return None
            count = left
        self._next += 1
        self._asked[self._next] = _Asked(holder, now, count)
        one.asked += 1
        return self._next, count

    # ------------------------------------------------------------------ what came of it

    def _answered(self, holder: str, step: int) -> _Asked | None:
        asked = self._asked.get(step)
        if asked is None or asked.holder != holder:
            return None
        del self._asked[step]
        if (one := self.rounds.holders.get(holder)) is not None:
            one.asked -= 1
        return asked

    def arrived(self, holder: str, step: int, batch: Any) -> bool:
        """A batch has come, with the tiles that it is of; False when it is not wanted.

        Not wanted is one of which a tile is not lacking, whoever brought that: the others of it
        are asked for again.
        """
        asked = self._answered(holder, step)
        if asked is None:
            return False
        made, tiles = batch
        found = [int(tile) for tile in tiles]
        lacks, one = self.ledger.lacks, self.rounds.holders.get(holder)
        fits = len(found) == len(set(found)) == asked.count and all(
            0 <= tile < len(lacks) and lacks[tile] for tile in found
        )
        if not fits or one is None or not all(one.part[tile] for tile in found):
            if one is not None:
                one.over = True  # it is of another mind than we are: what is left is dealt anew
            return False
        for tile in found:
            self.ledger.arrive(tile)
        one.left -= len(found)
        self._ready.append((found, made))
        self._deaths = 0
        return True

    def failed(self, step: int, failure: Failure) -> None:
        """A holder could not make a batch: the program is to try these tiles itself."""
        asked = self._answered(failure.holder, step)
        if asked is None:
            return
        lacks = self.ledger.lacks
        named = np.frombuffer(failure.tiles, np.int64) if len(failure.tiles) % 8 == 0 else ()
        tiles = [int(tile) for tile in named if 0 <= tile < len(lacks) and lacks[tile]]
        if tiles:
            self._failed.append(_Failed(tiles, [failure]))

    def given_back(self, holder: str, step: int, *, over: bool = False) -> bool:
        """A holder returns a request unmade; False when it is not its own.

        ``over``: it has fewer tiles than were asked for.
        """
        if self._answered(holder, step) is None:
            return False
        if over and (one := self.rounds.holders.get(holder)) is not None:
            one.over = True
        return True

    def gone(self, holder: str, *, crashed: bool) -> int:
        """A holder is no more; says how many batches are to be made by others."""
        steps = [step for step, asked in self._asked.items() if asked.holder == holder]
        for step in steps:
            del self._asked[step]
        self._deaths += bool(steps) and crashed
        self.rounds.lose(holder)
        return len(steps)

    def overdue(self, since: float) -> list[tuple[str, int]]:
        """Holders and requests that were asked before ``since`` and have not been answered."""
        return [(asked.holder, step) for step, asked in self._asked.items() if asked.since < since]

    # ------------------------------------------------------------------ what the program gets

    def take(self, *, elsewhere: bool = False) -> tuple[Need | None, Any]:
        """The next batch as ``(None, batch)``, or what is needed first.

        Args:
            elsewhere: there is somebody who is to make what nobody has: wait for that.
        """
        if self._ready:
            tiles, batch = self._ready.popleft()
            for tile in tiles:
                self.ledger.consume(tile)
            self.position += 1
            return None, batch
        if self._failed:
            return Need.MAKE, None
        if self.finished:
            return Need.END, None
        if not self._asked and (self._deaths >= MAX_DEATHS or self._nothing_left):
            return Need.MAKE, None
        return (Need.WAIT if self._asked or elsewhere else Need.MAKE), None

    def make_here(self, now: float) -> tuple[list[int], list[Failure]]:
        """The program makes a batch itself: of these tiles; and who failed on them.

        No tiles: the one that it has to make at the end.
        """
        if self._failed:
            failed = self._failed.popleft()
            self._here = failed.tiles
            return failed.tiles, failed.failures
        if self._nothing_left:
            self._more = False
            return [], []
        lacks = np.flatnonzero(self.ledger.lacks)
        short = self._options.short
        if short is not None and len(lacks) > self._options.batch_tiles:
            lacks = lacks[lacks != short]
        self._here = [int(tile) for tile in lacks[: self._options.batch_tiles]]
        return self._here, []

    def made_here(self) -> None:
        """The program has its batch, or what was raised instead."""
        for tile in self._here:
            if self.ledger.arrive(tile):
                self.ledger.consume(tile)
        self._here = []
        self._deaths = 0
        self.rounds.forget()
        self.position += 1
