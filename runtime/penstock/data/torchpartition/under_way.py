"""The steps of a loader that have begun and are not over, and when each of them is.

A step begins when the program gets its batch. Most programs use it before they ask for the next
one, and then it is over. Some take the next batch first, as accelerate's loaders do, and some take
all batches between two steps of the optimizer, as the Trainer of transformers does. That is found
by looking: a batch that is still there when the next one is wanted, and was not used, has its step
before it. From then on that many steps more are under way, and each of them ends so much later.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.data.partition.declared import Kind

MOST_AHEAD: Final = 64
"""Batches that a program may take before it uses the first of them."""


class Work(Protocol):
    """Who looks at a step."""

    @property
    def used(self) -> bool:
        """Whether the program has used the batch, as far as is seen.

        What moves a batch to the device on which it is may do so long before the batch is used.
        """


@dataclass(frozen=True)
class UnderWay:
    """A step that has begun.

    Attributes:
        work: who looks; None: nobody.
        number: of the step, in the proof.
        kind: of what came for it.
        decides: it is one of those that are recorded to see what may move.
        handed: the tensors that tell of the step, as long as anybody has them.
    """

    work: Work | None
    number: int
    kind: Kind | None
    decides: bool = True
    handed: Sequence[weakref.ref[Any]] = ()

    @property
    def waits(self) -> bool:
        """Whether its batch is still to be used."""
        if self.work is None or self.work.used:
            return False
        return any(reference() is not None for reference in self.handed)


class StepsUnderWay:
    """See the module's docstring.

    Attributes:
        ahead: batches that the program takes before it uses the first of them, beside that one.
    """

    def __init__(self, most: int = MOST_AHEAD) -> None:
        """``most``: that ``ahead`` may become."""
        self.ahead = 0
        self._most = most
        self._open: deque[UnderWay] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def in_use(self) -> Sequence[UnderWay]:
        """Those whose batches the program may be using now: one, if it takes at most one ahead."""
        return tuple(self._open) if self.ahead > 1 else tuple(itertools.islice(self._open, 1))

    @property
    def used_meanwhile(self) -> int:
        """Batches that the program uses while one step is under way, that of the step included."""
        return max(self.ahead, min(self.ahead + 1, 2))

    def begin(self, step: UnderWay) -> None:
        """A step with a batch that the program is about to get; of one nobody looks at as well."""
        if step.work is not None or self.ahead:
            self._open.append(step)

    def over(self) -> Iterator[UnderWay]:
        """The program wants its next batch: the steps that are over, in order."""
        found = len(self._open)
        if found > self.ahead and self._open[0].waits:
            # The first of several may have been taken with those before it, and wait for one more.
            self.ahead = min(found + (found > 1), self._most)
        while len(self._open) > self.ahead:
            yield self._open.popleft()

    def all_over(self) -> Iterator[UnderWay]:
        """The program wants no more of these batches: all steps, in order."""
        while self._open:
            yield self._open.popleft()
