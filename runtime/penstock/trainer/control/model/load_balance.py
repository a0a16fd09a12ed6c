"""How the slots of a step are divided among the members of a group: in proportion to their speed.

A slow member gets fewer slots of every step (DLRover, section 5.4: "dispatch fewer data shards"),
so that all members finish together; the step itself stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WORTHWHILE: Final = 0.9
"""New shares replace the old ones when they shorten the predicted step below this fraction."""


def even(slots: int, members: int) -> tuple[int, ...]:
    """As equal as integers allow, the first members taking the rest."""
    base, rest = divmod(slots, members)
    return tuple(base + (index < rest) for index in range(members))


def by_speed(slots: int, slot_seconds: Sequence[float | None]) -> tuple[int, ...]:
    """The shares that make the slowest member finish earliest.

    ``slot_seconds`` is the time that one slot takes on each member; a member that has not been
    measured counts as an average one. Each slot goes to whoever would finish it first, which is
    optimal for identical slots. Where there are enough slots everyone gets one, however slow: a
    member without any would never be measured again.
    """
    known = [seconds for seconds in slot_seconds if seconds]
    if not known:
        return even(slots, len(slot_seconds))
    mean = sum(known) / len(known)
    seconds = [value or mean for value in slot_seconds]
    shares = [1 if slots >= len(seconds) else 0] * len(seconds)
    for _ in range(slots - sum(shares)):
        chosen = min(range(len(seconds)), key=lambda i: ((shares[i] + 1) * seconds[i], i))
        shares[chosen] += 1
    return tuple(shares)


def step_seconds(shares: Sequence[int], slot_seconds: Sequence[float | None]) -> float:
    """Predicted compute time of a step: the slowest member's; 0 where nothing is known."""
    return max(
        (share * (seconds or 0.0) for share, seconds in zip(shares, slot_seconds, strict=True)),
        default=0.0,
    )


def improved(
    slots: int, current: Sequence[int], slot_seconds: Sequence[float | None]
) -> tuple[int, ...] | None:
    """Better shares than the current ones, or None when the gain is not worth a change."""
    if any(seconds is None for seconds in slot_seconds):
        return None
    best = by_speed(slots, slot_seconds)
    before = step_seconds(current, slot_seconds)
    if best != tuple(current) and step_seconds(best, slot_seconds) < WORTHWHILE * before:
        return best
    return None
