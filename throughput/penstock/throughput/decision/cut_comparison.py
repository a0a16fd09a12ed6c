"""Which of the cuts that data workers know would pay, which is next, and why.

FastFlow (PVLDB 16(5), section 4.2) weighs three, which differ in what the training pod keeps: it
reads, it batches, or it does nothing. Here each kind stands for the best cut of its kind, and the
one that `penstock.throughput.decision.offload` chooses among all of them is the one that pays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.throughput.decision.offload import (
    LEAST_GAIN,
    NEAR_BEST,
    Candidate,
    Decision,
    decide,
    unit,
)
from penstock.throughput.limits import capacity
from penstock.throughput.limits.capacity import binding, bounds
from penstock.throughput.limits.cut import CutKind, carried_out, kind_of
from penstock.throughput.limits.fetching import reading_apart
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources

_UNKNOWN: Final = {
    CutKind.WHOLE_BATCH: "how large a batch is was not measured",
    CutKind.TAIL_LOCAL: "how large a sample is between two transforms was not measured",
    CutKind.READ_LOCAL: "no reading of files was measured",
}


@dataclass(frozen=True, slots=True)
class CutOption:
    """The best cut of a kind.

    Attributes:
        kind: of the cut.
        cut: its name; "" where none was judged.
        rate: samples a second with it; 0 where none was judged.
        data_workers: that it takes.
        why: what bounds it, or why none was judged.
    """

    kind: CutKind
    cut: str
    rate: float
    data_workers: int
    why: str


@dataclass(frozen=True, slots=True)
class CutComparison:
    """All kinds beside each other.

    Attributes:
        options: one of each kind.
        chosen: the one that pays; None: none gains enough.
        runner_up: the best of another kind; None: no other was judged.
        without: the rate with nothing made elsewhere.
        why: a sentence for people.
    """

    options: tuple[CutOption, ...]
    chosen: CutOption | None
    runner_up: CutOption | None
    without: float
    why: str


def compare_cuts(profile: Profile, limits: Resources) -> CutComparison:
    """Compare.

    Args:
        profile: of the program.
        limits: what it has, with as many data workers as it may get.
    """
    profile = reading_apart(profile)
    decision = decide(profile, limits)
    possible = carried_out(profile.stages, reads=True) if limits.data_workers else []
    options = []
    for kind in CutKind:
        cuts = [cut for cut in possible if kind_of(cut, profile.stages) is kind]
        why = _UNKNOWN[kind] if limits.data_workers else "no data worker may be had"
        if cuts:
            best = decide(profile, limits, cuts=cuts, least_gain=0.0).chosen
            if best.placement.cut.moves:
                options.append(_option(kind, best, profile, limits))
                continue
            why = "it is slower than without data workers"
        options.append(CutOption(kind, "", 0.0, 0, why))
    chosen = _chosen(decision, options, profile, limits)
    others = [one for one in options if one.cut and (chosen is None or one.kind != chosen.kind)]
    runner_up = max(others, key=lambda one: one.rate, default=None)
    why = _why(decision, options, chosen, runner_up, profile)
    return CutComparison(tuple(options), chosen, runner_up, decision.without, why)


def _option(kind: CutKind, best: Candidate, profile: Profile, limits: Resources) -> CutOption:
    found = bounds(profile, replace(limits, data_workers=best.data_workers), best.placement)
    why = f"bound by {capacity.in_words(binding(found))}"
    return CutOption(kind, best.placement.cut.name, best.rate, best.data_workers, why)


def _chosen(
    decision: Decision, options: list[CutOption], profile: Profile, limits: Resources
) -> CutOption | None:
    if not decision.moves:
        return None
    kind = kind_of(decision.chosen.placement.cut, profile.stages)
    for place, one in enumerate(options):
        if one.kind is kind:
            options[place] = _option(one.kind, decision.chosen, profile, limits)
            return options[place]
    return None


def _why(
    decision: Decision,
    options: list[CutOption],
    chosen: CutOption | None,
    runner_up: CutOption | None,
    profile: Profile,
) -> str:
    each = unit(profile)
    if chosen is None:
        if runner_up is None:
            return f"no cut pays: {decision.why}"
        gain = max(0.0, runner_up.rate / decision.without - 1)
        return (
            f"no cut pays: the best, {in_words(runner_up)}, would bring {gain:.0%}, and "
            f"{LEAST_GAIN:.0%} is the least ({runner_up.why})"
        )
    text = (
        f"{in_words(chosen)} pays: {chosen.rate:.4g} {each} with {chosen.data_workers} data "
        f"worker{'s' * (chosen.data_workers != 1)}, {decision.without:.4g} without"
    )
    if runner_up is None:
        others = [f"{one.kind}: {one.why}" for one in options if one.kind is not chosen.kind]
        return "; ".join([text, *others])
    if runner_up.rate >= chosen.rate * (1 - NEAR_BEST):
        return f"{text}; {in_words(runner_up)} is as fast, and takes more of the others"
    return f"{text}; next is {in_words(runner_up)}, {runner_up.why} at {runner_up.rate:.4g}"


def in_words(option: CutOption) -> str:
    """Its kind, and where it is cut if that says more."""
    kind, cut = str(option.kind), option.cut
    detail = cut.removeprefix(kind).removeprefix(", ")
    return f"{kind} ({detail})" if detail else kind
