"""How many unmade batches each maker of batches may be asked for at once."""

from __future__ import annotations

from typing import Final

PREFETCH: Final = 2
"""One in the making and one to go on with; as PyTorch's ``prefetch_factor``."""
MAX_CREDITS: Final = 16
SLOW_PEER_CREDITS: Final = 1
AHEAD_SECONDS: Final = 0.05
AHEAD_BYTES: Final = 16 << 20
"""Small, quick batches are asked for more at once: for so long, and at most so many bytes."""
QUICK_SECONDS: Final = 0.005
"""A batch that takes less is asked for together with others: a message costs more than waiting."""


def credits_of(
    least: int, batch_seconds: float | None, fastest_seconds: float, batch_bytes: int
) -> int:
    """Unmade batches that one maker may be asked for at once: in proportion to its speed.

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


def has_room(held: int, credits_: int, batch_seconds: float | None) -> bool:
    """Whether a maker that has so many unmade batches is to be asked for more now.

    Quick batches are asked for when half of them are made, several in one message; slow ones one by
    one, as soon as one is made, so that neighbouring steps go to different makers.
    """
    if is_quick(batch_seconds):
        return 2 * held <= credits_
    return held < credits_


def is_quick(batch_seconds: float | None) -> bool:
    """Whether batches are known to take so little that they are asked for together."""
    return batch_seconds is not None and batch_seconds < QUICK_SECONDS
