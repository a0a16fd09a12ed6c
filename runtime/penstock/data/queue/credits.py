"""How many batches each data worker may be asked for at once."""

from __future__ import annotations

from typing import Final

MAX_CREDITS: Final = 16
SLOW_PEER_CREDITS: Final = 1
AHEAD_SECONDS: Final = 0.05
AHEAD_BYTES: Final = 16 << 20
"""Small, quick batches are asked for more at once: for so long, and at most so many bytes."""


def credits_of(
    least: int, batch_seconds: float | None, fastest_seconds: float, batch_bytes: int
) -> int:
    """Batches that one data worker may be asked for at once: in proportion to its speed.

    A straggler (DLRover, section 5.4) holds fewer steps, so that fewer wait behind it.

    Args:
        least: as many as one gets whose speed is not known.
        batch_seconds: how long a batch takes it; None: not known.
        fastest_seconds: how long a batch takes the fastest; 0: not known.
        batch_bytes: of the largest batch so far.
    """
    if not batch_seconds or not fastest_seconds:
        return least
    wanted = min(
        MAX_CREDITS, int(AHEAD_SECONDS / fastest_seconds), AHEAD_BYTES // max(1, batch_bytes)
    )
    return max(SLOW_PEER_CREDITS, round(max(least, wanted) * fastest_seconds / batch_seconds))
