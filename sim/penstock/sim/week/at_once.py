"""A bound on what one simulated moment may hold, so that no simulation stands still in time.

Two sides that answer each other at once (the controller and the machines) could do so for ever
without the clock moving. A run in which they do ends with an error that names the job.
"""

from __future__ import annotations

from penstock.sim.errors import SimulationError


class AtOnce:
    """Counts the looks of `job` at each moment; most ``most`` of them."""

    def __init__(self, job: str, most: int) -> None:
        self._job, self._most = job, most
        self._now, self._looks = float("-inf"), 0

    def look(self, now: float) -> None:
        """One more look at ``now``, in seconds.

        Raises:
            SimulationError: it is one too many for the moment.
        """
        self._looks = self._looks + 1 if now == self._now else 1
        self._now = now
        if self._looks > self._most:
            raise SimulationError(
                f"{self._job}: still changing after {self._most} looks at {now:.0f} s"
            )
