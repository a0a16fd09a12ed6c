"""What changed in a job's servers, and for how long that stopped the workers.

Each transition is a list of moments: from the order that stops the workers until the servers serve
again. The newest ones are kept for people, and for benchmarks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

KEPT: Final = 200


@dataclass
class Transition:
    """One change: what, and the time of each of its parts."""

    what: str
    began: float
    parts: list[tuple[str, float]] = field(default_factory=list)  # what was done until when
    number: int = 0

    def reached(self, part: str, now: float) -> None:
        """A part has ended."""
        self.parts.append((part, now))

    @property
    def seconds(self) -> float:
        """For how long workers could begin nothing."""
        return self.parts[-1][1] - self.began if self.parts else 0.0

    def spans(self) -> list[tuple[str, float]]:
        """Each part and the seconds that it took."""
        before, found = self.began, []
        for part, at in self.parts:
            found.append((part, at - before))
            before = at
        return found

    def __str__(self) -> str:
        spans = ", ".join(f"{part} {seconds:.3f}" for part, seconds in self.spans())
        return f"{self.what}: workers stopped for {self.seconds:.2f} s ({spans})"

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "number": self.number,
            "what": self.what,
            "seconds": round(self.seconds, 6),
            "parts": [[part, round(seconds, 6)] for part, seconds in self.spans()],
        }


@dataclass
class Transitions:
    """The newest transitions of one job, and the one that is going on."""

    kept: deque[Transition] = field(default_factory=lambda: deque(maxlen=KEPT))
    current: Transition | None = None
    total: int = 0

    def begin(self, what: str, now: float) -> None:
        """Workers are stopped from now on; does nothing if they are already."""
        if self.current is None:
            self.current = Transition(what, now)

    def name(self, what: str) -> None:
        """Say better what goes on."""
        if self.current is not None:
            self.current.what = what

    def reached(self, part: str, now: float) -> None:
        """A part of what goes on has ended."""
        if self.current is not None:
            self.current.reached(part, now)

    def end(self, part: str, now: float) -> None:
        """Workers go on."""
        if self.current is None:
            return
        self.current.reached(part, now)
        self.total += 1
        self.current.number = self.total
        self.kept.append(self.current)
        self.current = None

    def after(self, number: int) -> list[Transition]:
        """Those that ended after the one of this number, as far as they are kept."""
        return [each for each in self.kept if each.number > number]
