"""Of which batches local workers make what moves, so that neither they nor the training wait.

Local workers are as many as the program asked for, and share the training's machine. If they made
what moves of every batch, they would become what the training waits for wherever that is more work
than the training has left. So they make it of a share of the batches: the rest come as they are,
and the program makes its calls as written, which gives the same bits.

The share follows the queue between them (GoldMiner, SIGMOD 2023, section 3.4: the one signal that
both levels need). It has a part that is kept from epoch to epoch: less where the program had to
wait for a batch, more where workers had nothing to do. And one of the moment: more where many
batches wait, less where few do. Pure; one for each loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

FULL: Final = 24
"""Batches that wait, from which on there are many. More than a worker is asked for at once (16):
what is decided now is seen only when that has come, and a steeper share would swing to and fro."""
SWING: Final = 0.5
"""Of the share, between no batches that wait and many."""
STEP: Final = 0.02
"""By which the lasting part changes with a batch that is taken."""
FIRST: Final = SWING / 2
"""The lasting part at first: of no batch, as long as none wait."""

Steps = list[tuple[int, Any]]
"""Steps and their indices."""


@dataclass
class Balance:
    """Divides steps; see the module's docstring.

    Attributes:
        forced: the share, whatever waits; None: it follows the queue.
        lasting: the part that is kept.
    """

    forced: float | None = None
    lasting: float = FIRST
    _due: float = 0.0

    def took(self, *, waited: bool, idle: bool) -> None:
        """The program has taken a batch.

        Args:
            waited: it was not there yet.
            idle: all that workers were asked for is made.
        """
        change = -STEP if waited else STEP if idle else 0.0
        self.lasting = min(1 + SWING / 2, max(0.0, self.lasting + change))

    def divide(
        self, steps: Sequence[tuple[int, Any]], *, ready: int, ahead: int
    ) -> tuple[Steps, Steps]:
        """Steps of which all is to be made, and steps of which the batch alone is.

        Args:
            steps: that one worker is to be asked for.
            ready: batches that wait for the program.
            ahead: steps that may wait or be under way together.
        """
        share = self._share(ready, ahead)
        whole: Steps = []
        plain: Steps = []
        for step in steps:
            self._due += share
            chosen = self._due >= 1 - 1e-9
            self._due -= chosen
            (whole if chosen else plain).append(step)
        return whole, plain

    def _share(self, ready: int, ahead: int) -> float:
        if self.forced is not None:
            return self.forced
        fullness = min(1.0, ready / max(1, min(FULL, ahead // 2)))
        return min(1.0, max(0.0, self.lasting + SWING * (fullness - 0.5)))
