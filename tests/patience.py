"""How long tests wait for what has to come.

A test names the time that a quiet machine needs at most. Machines are also busy: waiting longer
costs nothing where the awaited comes, and only delays the failure where it never does.
"""

from __future__ import annotations

from typing import Final

BUSY: Final = 6.0
"""How many times slower than a quiet machine one may be."""


def patient(seconds: float) -> float:
    """The time to wait, in seconds, for what a quiet machine does in `seconds`."""
    return BUSY * seconds
