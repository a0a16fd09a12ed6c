"""How many data workers a share group needs, and which of its members has how many of them.

The members of a group take the same batches, so what feeds the fastest of them feeds all: the need
is that of one job, and not the sum (tf.data service, SoCC 23, exports the sum of the consumption
rates over the mean throughput of a worker, section 3.1; with sharing that would be a group of eight
with eight times the workers). The data workers stay each in a member's own pods, since they end
with it; so the need is divided.

Whoever has some keeps them as long as the group needs them: a member that joins, or ends, moves no
data worker from one to another. All is a function of the need, of who is there and of what each
has, so that members that are planned for at different times are planned for alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping


def group_need(own_need: float, own_rate: float, rates: Iterable[float]) -> float:
    """Data workers that a group needs, as one member sees it.

    Args:
        own_need: that the member would need by itself.
        own_rate: batches per second that it would take if it never waited.
        rates: the same of all members, itself included.
    """
    fastest = max((rate for rate in rates if math.isfinite(rate)), default=0.0)
    if not own_rate > 0 or not fastest > own_rate:
        return own_need
    need = own_need * fastest / own_rate
    return need if math.isfinite(need) else own_need


def divide(need: int, have: Mapping[str, int]) -> dict[str, int]:
    """How many data workers each member is to have, so that they are `need` together.

    What is missing goes to those who have fewest, the first uid first; what is too much is taken
    from those who have most, the last uid first.

    Args:
        need: of the group.
        have: by the members' uids, what each has now.
    """
    parts = {uid: max(0, have[uid]) for uid in sorted(have)}
    if not parts:
        return {}
    change = max(0, need) - sum(parts.values())
    # All who have fewer, or more, come to one level, and some of them one further.
    low, high = (min(parts.values()), need) if change > 0 else (0, max(parts.values()))
    while low < high:
        level = (low + high + (change > 0)) // 2
        fits = _moved(parts, level, rising=change > 0) <= abs(change)
        if change > 0:
            low, high = (level, high) if fits else (low, level - 1)
        else:
            low, high = (low, level) if fits else (level + 1, high)
    left = abs(change) - _moved(parts, low, rising=change > 0)
    if change > 0:
        parts = {uid: max(count, low) for uid, count in parts.items()}
        further = [uid for uid, count in parts.items() if count == low][:left]
    else:
        parts = {uid: min(count, low) for uid, count in parts.items()}
        further = [uid for uid, count in reversed(parts.items()) if count == low][:left]
    for uid in further:
        parts[uid] += 1 if change > 0 else -1
    return parts


def _moved(parts: Mapping[str, int], level: int, *, rising: bool) -> int:
    """By how many data workers all parts below a level, or above it, differ from it."""
    sign = 1 if rising else -1
    return sum(max(0, sign * (level - count)) for count in parts.values())
