"""How long a container waits before it is started again: the kubelet's crash-loop back-off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffOptions:
    """The real kubelet's values; tests shorten them."""

    first_seconds: float = 10.0
    longest_seconds: float = 300.0

    @property
    def forget_seconds(self) -> float:
        """A container that ran this long starts over."""
        return 2 * self.longest_seconds


@dataclass(slots=True)
class Backoff:
    """Of one container. The first restart is immediate, then 10 s, 20 s, ... up to 300 s."""

    options: BackoffOptions
    _next_seconds: float | None = None

    def delay(self, ran_seconds: float) -> float:
        """Seconds to wait after a run that took ``ran_seconds``."""
        if self._next_seconds is None or ran_seconds >= self.options.forget_seconds:
            self._next_seconds = self.options.first_seconds
            return 0.0
        delay = self._next_seconds
        self._next_seconds = min(2 * delay, self.options.longest_seconds)
        return delay


def should_restart(restart_policy: str, exit_code: int) -> bool:
    """Whether a container that ended is started again."""
    return restart_policy == "Always" or (restart_policy == "OnFailure" and exit_code != 0)
