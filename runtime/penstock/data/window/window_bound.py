"""How many steps of an epoch may be under way at once: by need, in the memory that there is.

Who makes batches needs two steps each, or what it has made waits for the next request. More than
that is good for small batches only, of which a late one must not hold up all others. What is under
way lies in memory until the program has dropped it, and making a batch needs its samples beside it;
so the number of steps, and of those who make them, follows the size of the batches and the memory
that the pod may still take, never a constant. The rule is pure; `penstock.data.memory` measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SMALL_STEPS: Final = 64
SMALL_BYTES: Final = 64 << 20
"""Small batches are asked for this far ahead, and at most so many bytes of them."""
HELD_BATCHES: Final = 2
"""The program holds one batch, and another while it takes the next."""
MAKING_COPIES: Final = 2
"""Beside the batch itself: its samples, and the batch once more where collating copies."""
ASSUMED_BYTES: Final = 160 << 20
"""Of a batch of which none has come: as large as any that trainings of images use."""


class Limit(StrEnum):
    """What keeps more steps from being under way."""

    NEED = ""
    MEMORY = "memory"
    SAMPLER = "sampler"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class WindowBound:
    """The answer for one moment.

    Attributes:
        ahead: steps beyond the program's position that may be asked for or wait for it, at least 1.
        makers: how many may be making a batch at once, at least 1.
        limit: what keeps both from being as large as is needed.
    """

    ahead: int
    makers: int
    limit: Limit = Limit.NEED


def bound_window(
    *, makers: int, prefetch: int, batch_bytes: int, room_bytes: int, lookahead: int | None = None
) -> WindowBound:
    """Bound the steps of one epoch.

    Args:
        makers: processes that could make batches now.
        prefetch: batches that each of them is asked for ahead, at least 2 are.
        batch_bytes: of the largest batch so far; 0: none has come.
        room_bytes: memory for all that is under way, what there is of it already included.
        lookahead: steps that the sampler may be asked for ahead of the program; None: any.
    """
    makers = max(1, makers)
    size = batch_bytes or ASSUMED_BYTES
    need = max(2, prefetch) * makers
    if batch_bytes:
        need = max(need, min(SMALL_STEPS, SMALL_BYTES // batch_bytes))
    limit = Limit.NEED
    if lookahead is not None and lookahead < need:
        need, limit = max(1, lookahead), Limit.SAMPLER
        makers = min(makers, need)
    steps = max(0, room_bytes // size - HELD_BATCHES)
    if need + MAKING_COPIES * makers <= steps:
        return WindowBound(need, makers, limit)
    # Two steps for everybody who makes, and what making takes: as many as fit.
    least = min(2, need)
    fitting = max(1, min(makers, steps // (least + MAKING_COPIES)))
    ahead = max(1, min(need, steps - MAKING_COPIES * fitting))
    return WindowBound(ahead, fitting, Limit.MEMORY)
