"""How long the trainer waits for servers and workers before it goes on without them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """All in seconds."""

    settle: float = 0.5
    """How long after a newcomer others are waited for, where nobody says how many there will be."""
    expected: float = 60.0
    """How long servers whose pods exist are waited for before there is a layout without them."""
    suspected: float = 5.0
    """An owner that has been silent for so long, and does not answer a worker either, is lost."""
    silent: float = 15.0
    """An owner that has been silent for so long is lost."""
    gone: float = 2.0
    """The same where its pod is gone, or where it does not hold what it should."""
    halt: float = 10.0
    """How long workers may take to end what they have begun before their leases are ended."""
    freeze: float = 10.0
    """How long servers may take to freeze, to copy, or to serve what they have built."""
    build: float = 30.0
    """How long servers may take to build a layout from others before the present one goes on."""
    initialize: float = 600.0
    """How long the chief may take to fill a layout, or to save a snapshot."""
    last: float = 600.0
    """How long the trained model is tried to be saved before the job ends without."""
    retry: float = 5.0
    """The pause after a change that failed; doubles with each failure, up to `retry_limit`."""
    retry_limit: float = 60.0
    repair: float = 10.0
    """How long the training goes on, at most, to complete what a dead worker left half done."""
    recover: float = 15.0
    """How long a trainer that was restarted waits for all owners of the layout to report."""


@dataclass
class Backoff:
    """When a change that failed is tried again."""

    timeouts: Timeouts
    _at: float = float("-inf")
    _failures: int = 0  # one after the other

    def is_waiting(self, now: float) -> bool:
        """Whether it is too early."""
        return now < self._at

    def postpone(self, now: float) -> None:
        """It failed: pause before the next attempt."""
        pause = self.timeouts.retry * 2**self._failures
        self._at = now + min(pause, self.timeouts.retry_limit)
        self._failures = min(self._failures + 1, 16)

    def reset(self) -> None:
        """The next failure is the first one again."""
        self._failures = 0

    def cancel(self) -> None:
        """Something else is to be done now, for which there is no reason to wait."""
        self._at = float("-inf")
