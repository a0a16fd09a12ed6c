"""What to make elsewhere, whether to do so at all, and how much of it.

FastFlow (PVLDB 16(5), section 4) chooses an operator to cut at by a weighted sum of three rates,
and a ratio from two of them; `fastflow` has its rule as a reference. Here every candidate is judged
by the same bounds that `capacity` has, so that the resource that binds decides:

1. the best rate that any cut that can be carried out, number of data workers and share reach;
2. of those that nearly reach it, the one that takes the least CPU elsewhere (FastFlow's ``Lower``,
   where its rule takes ``Upper``, as much as the other side can), then the fewest bytes; with some
   headroom on either side of the share, since no cost is known exactly;
3. nothing at all, where that gains less than 10 % (FastFlow, Algorithm 1, line 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.throughput.limits.capacity import HERE, Placement, binding, bounds
from penstock.throughput.limits.cut import Cut, carried_out, cuts_of, split
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources

LEAST_GAIN: Final = 0.10
"""Below this nothing is moved (FastFlow's SpeedUpThreshold)."""
NEAR_BEST: Final = 0.005
HEADROOM: Final = 0.05
"""As much as a measured cost is wrong by."""
_CONSTANT: Final = frozenset({"accelerator", "storage"})
_STEPS: Final = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to do it, and its rate by the bounds, in samples a second."""

    placement: Placement
    data_workers: int
    rate: float
    remote_cores: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done.

    Attributes:
        chosen: `moves` is False where nothing is made elsewhere.
        without: the rate with nothing made elsewhere.
        runner_up: the best of another cut, or of none; None if there is no other.
        binding: the resource that bounds the chosen one.
        why: a sentence for people.
    """

    chosen: Candidate
    without: float
    runner_up: Candidate | None
    binding: str
    why: str

    @property
    def moves(self) -> bool:
        """Whether anything is made elsewhere."""
        return self.chosen.data_workers > 0

    @property
    def gain(self) -> float:
        """Of the rate, as a share."""
        return self.chosen.rate / self.without - 1


def decide(
    profile: Profile,
    limits: Resources,
    *,
    cuts: Sequence[Cut] | None = None,
    least_gain: float = LEAST_GAIN,
    headroom: float = HEADROOM,
) -> Decision:
    """Choose.

    Args:
        profile: of the program.
        limits: what it has, with as many data workers as it may get.
        cuts: to choose from; default: all that data workers carry out. That the training pod reads
            for them is one of these where it is known what reading costs data workers.
        least_gain: below it nothing is moved.
        headroom: how much more than the goal everything that depends on the share could do.
    """
    alone = replace(limits, data_workers=0)
    found = bounds(profile, alone)
    without = Candidate(HERE, 0, min(found.values()), 0.0, 0.0)
    if not limits.data_workers:
        return Decision(without, without.rate, None, binding(found), "no data worker may be had")
    reads = limits.data_worker_reading_seconds is not None
    possible = carried_out(profile.stages, reads=reads) if cuts is None else cuts
    cheapest = [one for cut in possible if (one := _cheapest(profile, limits, cut, 0.0))]
    best = max([one.rate for one in cheapest], default=0.0)
    goal = best * (1 - NEAR_BEST)
    near = [
        _cheapest(profile, limits, one.placement.cut, goal, headroom) or one for one in cheapest
    ]
    near = [one for one in near if one.rate >= goal * (1 - 1e-9)]
    ranked = sorted(near, key=lambda one: (one.remote_cores, one.bytes_per_second))
    if not ranked or best < without.rate * (1 + least_gain):
        gain = max(0.0, best / without.rate - 1)
        text = f"bound by {_bound(found, alone)}; data workers would bring {gain:.0%}: not worth it"
        runner = max(cheapest, key=lambda one: one.rate, default=None)
        return Decision(without, without.rate, runner, binding(found), text)
    chosen = ranked[0]
    others = [one for one in cheapest if one.placement.cut != chosen.placement.cut] or [without]
    with_them = replace(limits, data_workers=chosen.data_workers)
    limit = binding(bounds(profile, with_them, chosen.placement))
    text = (
        f"bound by {_bound(found, alone)} at {without.rate:.4g} {unit(profile)}; with "
        f"{chosen.placement.share:.0%} made by {chosen.data_workers} data workers "
        f"({chosen.placement.cut.name}) by {limit}, at {chosen.rate:.4g}"
    )
    return Decision(chosen, without.rate, max(others, key=lambda one: one.rate), limit, text)


def best_share(profile: Profile, resources: Resources, cut: Cut) -> float:
    """The share at which the least bound is greatest.

    Every bound only rises or only falls with the share, so their least has one maximum. Without
    local workers there is only one share (`penstock.throughput.limits.capacity.share_of`).
    """
    if not resources.workers:
        return 1.0
    return _peak(lambda share: _rate(profile, resources, cut, share))


def _cheapest(
    profile: Profile, limits: Resources, cut: Cut, goal: float, headroom: float = 0.0
) -> Candidate | None:
    """The fewest data workers and the least share that reach ``goal``, or the best for 0."""
    share = best_share(profile, limits, cut)
    rate = _rate(profile, limits, cut, share)
    if rate < goal:
        return None
    number = limits.data_workers
    if goal:
        low = 1
        while low < number:
            middle = (low + number) // 2
            fewer = replace(limits, data_workers=middle)
            if _rate(profile, fewer, cut, best_share(profile, fewer, cut)) >= goal:
                number = middle
            else:
                low = middle + 1
        fewer = replace(limits, data_workers=number)
        share = _roomy_share(profile, fewer, cut, goal, headroom)
        rate = _rate(profile, fewer, cut, share)
    return _candidate(profile, Placement(cut, share), number, rate)


def _roomy_share(
    profile: Profile, resources: Resources, cut: Cut, goal: float, headroom: float
) -> float:
    """The least share at which what depends on it could do more than the goal, by the headroom.

    Where nothing can, the share at which it can most. Without local workers there is only one.
    """
    if not resources.workers:
        return 1.0

    def able(share: float) -> float:
        found = bounds(profile, resources, Placement(cut, share))
        return min(rate for name, rate in found.items() if name not in _CONSTANT)

    enough = _peak(able)
    wanted = min(goal * (1 + headroom), able(enough))
    low, high = 0.0, enough
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if able(middle) >= wanted:
            high = middle
        else:
            low = middle
    return high


def _peak(rate: Callable[[float], float]) -> float:
    """Where a function that first rises and then falls is greatest, between 0 and 1."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if rate(left) < rate(right):
            low = left
        else:
            high = right
    return max((low, high, 1.0), key=rate)


def _candidate(profile: Profile, placement: Placement, number: int, rate: float) -> Candidate:
    parts = split(profile.stages, placement.cut)
    transport = profile.transport
    remote = parts.remote_cpu + transport.send_cpu_seconds * parts.bytes_in
    remote += transport.receive_cpu_seconds * parts.bytes_out
    moved = rate * placement.share
    return Candidate(
        placement, number, rate, moved * remote, moved * (parts.bytes_in + parts.bytes_out)
    )


def _bound(found: Mapping[str, float], resources: Resources) -> str:
    """What binds, in words."""
    name = binding(found)
    if name == "accelerator" and not resources.workers:
        return "the training process, which makes its batches itself,"
    return name


def unit(profile: Profile) -> str:
    """Of its rates: of a running job only batches are counted."""
    return "batches/s" if profile.batch_size == 1 else "samples/s"


def candidates(profile: Profile, limits: Resources) -> Iterator[Candidate]:
    """The best of every cut, for people who want to see what was weighed."""
    for cut in cuts_of(profile.stages):
        if (one := _cheapest(profile, limits, cut, 0.0)) is not None:
            yield one


def _rate(profile: Profile, resources: Resources, cut: Cut, share: float) -> float:
    return min(bounds(profile, resources, Placement(cut, share)).values())
