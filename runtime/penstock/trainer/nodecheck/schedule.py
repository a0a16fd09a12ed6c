"""When members of a session measure between two steps, and which of them in pairs (pure).

The group's first member decides, for all. A round takes three steps' agreements: with the first all
are told to listen, with the second they say where, and are told their partners; they measure after
that step, and with the third they say how long it took.

Guarantees: what the rounds take, each as long as its slowest member, is at most the share of the
time that was asked for; the first one comes after `WORST_SECONDS` of that share. Nobody is in two
pairs of a round, and of N members each meets all others in N - 1 rounds (N if it is odd).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WORST_SECONDS: Final = 1.0
"""What a round is taken to cost until its members have said what it did."""
LEAST_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Said:
    """What a member says with a step.

    Attributes:
        address: HOST:PORT where a partner measures the link to it; empty: it does not listen.
        spent: seconds that its last measurement took; 0: it has measured nothing since it said so.
    """

    address: str = ""
    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class Order:
    """What members are to do after a step; without pairs: listen.

    Attributes:
        pairs: index of each member that measures, and its partner's; None: it has none.
    """

    pairs: tuple[tuple[int, int | None], ...] = ()


class Schedule:
    """Of one group's first member."""

    def __init__(self, share: float, now: float) -> None:
        """``share``: of the time, above 0 and below 1."""
        self._share = share
        self._round = 0
        self._due = now + WORST_SECONDS / share
        self._listening = False
        self._spent = 0.0
        self._began: float | None = None  # of the round that nobody has said the cost of

    def decide(self, said: Sequence[Said], now: float, *, calm: bool) -> Order | None:
        """What to do after this step, if anything.

        Args:
            said: by each member, by its index.
            now: seconds of a clock that does not go back.
            calm: nobody is about to leave.
        """
        self._settle(said)
        listening, self._listening = self._listening, False
        if not calm or len(said) < 2 or now < self._due:
            return None
        if not listening:
            self._listening = True
            return Order()
        there = [index for index, one in enumerate(said) if one.address]
        self._began, self._due = now, now + WORST_SECONDS / self._share
        if len(there) < 2:  # the others are of an older release
            return None
        self._round += 1
        return Order(pairs(there, self._round))

    def _settle(self, said: Sequence[Said]) -> None:
        """Learn what the last round took."""
        spent = max((one.spent for one in said), default=0.0)
        if self._began is not None and spent > 0:
            self._due = self._began + max(spent, LEAST_SECONDS) / self._share
            self._began = None


def pairs(members: Sequence[int], number: int) -> tuple[tuple[int, int | None], ...]:
    """Each member with its partner of a round, by the circle method of round-robin tournaments."""
    circle: list[int | None] = [*members]
    if len(circle) % 2:
        circle.append(None)
    first, others = circle[0], circle[1:]
    turn = number % len(others) if others else 0
    turned = [first, *others[turn:], *others[:turn]]
    half = len(turned) // 2
    found: dict[int, int | None] = {}
    for one, other in zip(turned[:half], reversed(turned[half:]), strict=True):
        if one is not None:
            found[one] = other
        if other is not None:
            found[other] = one
    return tuple(sorted(found.items()))
