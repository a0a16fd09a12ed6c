"""A profile as people read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.throughput.decision.cut_comparison import CutComparison, compare_cuts, in_words
from penstock.throughput.decision.offload import unit
from penstock.throughput.decision.what_if import Point, helps, is_held_up
from penstock.throughput.errors import ProfileError
from penstock.throughput.limits import capacity
from penstock.throughput.limits.capacity import binding, bounds
from penstock.throughput.profiles.profile import Profile

LEAST_SHARE = 0.005
"""A cause that is less than this of the time is not named."""
NOT_STALLED = 0.02
NO_GAIN = 0.03
CUT_FOR = 2
"""Data workers that cuts are compared with."""
_WIDTH = 34


def report(profile: Profile) -> str:
    """Where the time goes, what limits it, and what would help."""
    return "\n".join(_lines(profile)) + "\n"


def _lines(profile: Profile) -> Iterator[str]:
    now = profile.resources
    makers = f"{now.workers} loader workers" if now.workers else "no loader workers"
    yield f"{profile.program}: batch {profile.batch_size}, {makers} on {now.cores:g} cores"
    rate = profile.rate
    yield (
        f"now         {of_rate(rate.value)} {unit(profile)} [{of_rate(rate.low)}, "
        f"{of_rate(rate.high)}], "
        f"waits for data {profile.stalled:.0%} of the time"
    )
    causes = sorted(profile.causes.items(), key=lambda one: -one[1])
    if named := [f"{cause} {share:.0%}" for cause, share in causes if share >= LEAST_SHARE]:
        yield f"by cause    {', '.join(named)}"
    found = bounds(profile, now)
    least = binding(found)
    yield "limits      " + ", ".join(
        f"{_name(name)} {of_rate(value)}{' <- binds' if name == least else ''}"
        for name, value in sorted(found.items(), key=lambda one: one[1])
    )
    costs = ", ".join(
        f"{stage.name} {1e3 * stage.seconds:.3g}"
        for stage in profile.stages
        if stage.seconds >= 0.01 * (profile.cpu_seconds + profile.blocked_seconds)
    )
    each = "a batch " if unit(profile) == "batches/s" else "a sample"
    yield f"{each}    {costs} ms"
    yield from (f"note        {note}" for note in profile.notes)
    yield ""
    if profile.stalled < NOT_STALLED:
        yield "The training does not wait for its data: nothing of this would make it faster."
        return
    yield f"{'what would help':{_WIDTH}} {unit(profile):>22}   waits"
    try:
        yield from (_way(profile, name, point) for name, point in helps(profile))
    except ProfileError as error:
        yield f"no prediction: {error}"
        return
    yield ""
    compared = compare_cuts(profile, replace(now, data_workers=CUT_FOR))
    yield from _cuts(compared, unit(profile), held_up=is_held_up(profile, now))


def of_rate(value: float) -> str:
    """Of whole batches there may be less than one a second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cuts(compared: CutComparison, each: str, *, held_up: bool) -> Iterator[str]:
    """What data workers should make of each batch."""
    title = f"what {CUT_FOR} data workers should make"
    yield f"{title:{_WIDTH}} {each:>22}"
    for one in sorted(compared.options, key=lambda option: -option.rate):
        rate = of_rate(one.rate) if one.cut else "-"
        pays = "  <- pays" if one == compared.chosen and not held_up else ""
        yield f"{in_words(one):{_WIDTH}} {rate:>22}   {one.why}{pays}"
    if held_up:
        yield (
            "which of them pays is not known: these are limits, and other programs hold up the "
            "loader's workers, which no limit has; profile again without them"
        )
    else:
        yield compared.why


def _way(profile: Profile, name: str, point: Point) -> str:
    found = point.prediction
    if found.rate < profile.rate.value * (1 + NO_GAIN):
        return f"{name:{_WIDTH}} {'no gain':>22}   ({_name(found.binding)} binds)"
    interval = f"{of_rate(found.rate)} [{of_rate(found.low)}, {of_rate(found.high)}]"
    far = "  far from what was measured" if found.extrapolated else ""
    return f"{name:{_WIDTH}} {interval:>22}   {found.stalled:5.0%}{far}"


def _name(bound: str) -> str:
    return capacity.in_words(bound).removeprefix("the ")
