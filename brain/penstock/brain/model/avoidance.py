"""For how long a bad node is avoided, and which are avoided at all (pure).

Guarantees:
- every avoidance ends: what was broken is repaired, or is found to be bad again, then for twice as
  long as the last time;
- a person's word counts more than any check, until it ends;
- what checks alone have found keeps at most `MOST_SHARE` of the nodes empty, the worst of them:
  one job whose measurements are wrong, or that lies, cannot take the cluster from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 3600.0
LONGEST_SECONDS: Final = 7 * 86_400.0
MOST_SHARE: Final = 0.1
GOOD: Final = "Good"
FAILING: Final = "Failing"
AVOID: Final = "Avoid"
CLEAR: Final = "Clear"


@dataclass(frozen=True, slots=True)
class Standing:
    """What counts of one node.

    Attributes:
        name: its name.
        verdict: of the newest check.
        ratio: how many times slower than usual that found it.
        avoid_until: until when checks have it avoided.
        override: `AVOID`, `CLEAR` or empty: what a person said.
        override_until: until when.
    """

    name: str
    verdict: str = ""
    ratio: float = 1.0
    avoid_until: float | None = None
    override: str = ""
    override_until: float | None = None

    def word(self, now: float) -> str:
        """What a person said of it that still counts; empty: nothing."""
        in_force = self.override_until is not None and self.override_until > now
        return self.override if in_force else ""

    def until(self, now: float) -> float | None:
        """When what counts now ends; None: nothing does."""
        if self.word(now):
            return self.override_until
        return self.avoid_until if self.found_bad(now) else None

    def found_bad(self, now: float) -> bool:
        """Whether checks have it avoided."""
        return self.avoid_until is not None and self.avoid_until > now


def avoid_for(times: int) -> float:
    """Seconds for which a node is avoided that so many checks in a row have found bad."""
    return min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(max(times, 1) - 1, 30))


def avoided(standings: Iterable[Standing], nodes: int, now: float) -> list[str]:
    """The nodes that new pods are kept away from, the surest first.

    Args:
        standings: what is known of nodes.
        nodes: how many nodes there are, known or not.
        now: the present time.
    """
    said, found = [], []
    for one in standings:
        word = one.word(now)
        if word == AVOID:
            said.append(one)
        elif not word and one.found_bad(now):
            found.append(one)
    found.sort(key=lambda one: (one.verdict != FAILING, -one.ratio, one.name))
    most = max(1, math.floor(nodes * MOST_SHARE))
    return [*sorted(one.name for one in said), *(one.name for one in found[:most])]
