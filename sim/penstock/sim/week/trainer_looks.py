"""When a simulated trainer looks at its job: from its start on, as often as there are samples.

A job with a plan that waits for its nodes has none, for days where the cluster is full. It is not
looked at until it has, and then at the moments at which it would have been looked at all along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.sim.week.brain_view import SAMPLE_SECONDS, BrainView
from penstock.sim.week.world.clock import Clock

_TRAINER_ASKS: Final = 1.0


class TrainerLooks:
    """The looks of one trainer; `look` says whether there will be another."""

    def __init__(self, clock: Clock, brain: BrainView, look: Callable[[], bool]) -> None:
        self._clock, self._brain, self._look = clock, brain, look
        self._begun = False
        self._slept: float | None = None
        """When it last saw that there is nothing to see yet."""

    def begin(self) -> None:
        """The trainer works; that it does again, in another pod, changes nothing."""
        if not self._begun:
            self._begun = True
            self._clock.at(self._clock.now + _TRAINER_ASKS, self._go_on)

    def wake(self) -> None:
        """Something has happened to the job: look again, if there is something to see now."""
        if self._slept is None or not self._brain.has_something_to_see:
            return
        missed = (self._clock.now - self._slept) // SAMPLE_SECONDS
        self._clock.at(self._slept + (missed + 1) * SAMPLE_SECONDS, self._go_on)
        self._slept = None

    def _go_on(self) -> None:
        if not self._brain.has_something_to_see:
            self._slept = self._clock.now
        elif self._look():
            self._clock.at(self._brain.next_look(self._clock.now), self._go_on)
