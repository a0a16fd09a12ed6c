"""How often a worker forms a group again, and how long it pauses before: pure.

A group that breaks is formed anew at once: a worker that died is the ordinary case, and the step
that it broke is to be done again within a second. A group that breaks again before any step was
committed has another cause, which may well last: the pause doubles each time, up to a bound, with
jitter, and after a number of times the worker gives up and says why. A committed step begins the
count anew. Groups that the trainer ended do not count: it knows why, and paces them itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.25
MAX_PAUSE_SECONDS: Final = 8.0
"""Well below the time that the trainer waits for a member that does not leave a broken group."""
MAX_BREAKS: Final = 20


@dataclass(frozen=True, slots=True)
class Regrouping:
    """The groups that broke since the last committed step."""

    breaks: int = 0
    newest: str = ""
    """Why the newest one did."""

    def broken(self, why: str) -> Regrouping:
        """A group broke."""
        return replace(self, breaks=self.breaks + 1, newest=why)

    def committed(self) -> Regrouping:
        """A step was committed."""
        return Regrouping() if self.breaks else self

    @property
    def exhausted(self) -> bool:
        """Whether it is no use any more."""
        return self.breaks >= MAX_BREAKS

    def pause_seconds(self, dice: float) -> float:
        """The pause before the next group.

        Args:
            dice: a random number of 0 to 1. Workers that broke together do not all come back at
                the same moment: between half of the pause and all of it.
        """
        if self.breaks < 2:
            return 0.0
        # Beyond 2**16 times the first pause the bound holds anyway.
        doubled = FIRST_PAUSE_SECONDS * 2.0 ** min(self.breaks - 2, 16)
        return min(doubled, MAX_PAUSE_SECONDS) * (0.5 + 0.5 * dice)

    def resignation(self) -> str:
        """What to say when giving up."""
        return (
            f"the group broke {self.breaks} times in a row without a step in between, the last "
            f"time: {self.newest}: see the logs of the other workers, and whether the pods of the "
            "job reach each other on all ports"
        )
