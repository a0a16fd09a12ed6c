"""How many slots a holder gets at once: in proportion to its speed, and fewer towards the end.

A straggler is handed fewer slots (DLRover, section 5.4), because a lease is sized by time: it
should last a fixed part of its term, so that it is acknowledged long before it expires. Near the
end of the data leases shrink to a part of what is left ("guided self-scheduling", Polychronopoulos
and Kuck 1987), so that no holder still works for long when all others have nothing to do.
"""

from __future__ import annotations

from typing import Final

TARGET_SHARE_OF_TERM: Final = 0.25


def lease_slots(
    *,
    remaining: int,
    holders: int,
    lease_seconds: float,
    slot_seconds: float | None,
    max_slots: int,
) -> int:
    """Slots of the next lease, from 1 to ``max_slots``.

    Args:
        remaining: slots that nobody has consumed yet.
        holders: how many share them.
        lease_seconds: the term of a lease.
        slot_seconds: time that the holder takes for one slot; None: not measured yet, it gets one.
        max_slots: most that the holder wants.
    """
    if slot_seconds is None:
        return min(1, max_slots)
    by_time = max_slots
    if slot_seconds > 0:
        by_time = int(min(max_slots, lease_seconds * TARGET_SHARE_OF_TERM / slot_seconds))
    by_rest = -(-remaining // (2 * max(1, holders)))
    return max(1, min(max_slots, by_time, by_rest))
