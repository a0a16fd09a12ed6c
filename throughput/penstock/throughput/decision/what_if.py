"""Sweeps over resources, and the knee: the least of a resource that nearly reaches the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.throughput.decision.offload import decide
from penstock.throughput.limits.capacity import Placement, bounds
from penstock.throughput.loop.prediction import Prediction, predict, whole_batches
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources

NEAR: Final = 0.99
HELD_UP: Final = 0.9
"""Of what the bounds allow: a program that does less is held up by what no bound has."""
SHARES: Final = (0.25, 0.5, 0.625, 0.75, 0.875, 1.0)
COPIES_BESIDE: Final = "pinned, non_blocking copies"
"""Who trains on a device and holds its thread up with copies may do that."""


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration and what the program would do with it."""

    resources: Resources
    placement: Placement
    prediction: Prediction


def what_if(
    profile: Profile, configurations: Iterable[Resources], *, overlap_copies: bool = False
) -> list[Point]:
    """The prediction of each; where data workers are given, with the best use of them.

    Args:
        profile: of the program.
        configurations: to ask about.
        overlap_copies: as if copies to a device ran beside the training. How much of them does is
            up to the program, so that the low end is that of a program as it is.
    """
    asked = list(configurations)
    if overlap_copies:
        as_it_is = what_if(profile, asked)
        beside = what_if(profile.with_copies_overlapped(), asked)
        return [_or_not(one, other) for one, other in zip(beside, as_it_is, strict=True)]
    return [_best_use(profile, resources) for resources in asked]


def is_held_up(profile: Profile, resources: Resources) -> bool:
    """Whether others on its cores hold its workers up by more than the bounds say.

    A bound is what a resource allows by itself. Where others want the same cores it is the loop
    that says how far a program is from it.
    """
    alone = replace(resources, data_workers=0)
    if not alone.workers or not profile.others:
        return False
    least = min(bounds(profile, alone).values())
    return predict(profile, alone).rate < HELD_UP * least


def _best_use(profile: Profile, resources: Resources) -> Point:
    """The share and cut that the bounds have as best, or what the loop has, where they differ."""
    if not resources.data_workers:
        return Point(resources, Placement(), predict(profile, resources))
    uses = [(resources, decide(profile, resources, least_gain=0.0).chosen.placement)]
    if is_held_up(profile, resources):
        most = resources.data_workers
        for number in sorted({1, -(-most // 2), most}):  # more than are of use have nothing to do
            fewer = replace(resources, data_workers=number)
            uses += [(fewer, whole_batches(profile, fewer, share)) for share in SHARES]
    points = [Point(resources, use, predict(profile, used, use)) for used, use in uses]
    return max(points, key=lambda point: point.prediction.rate)


def _or_not(beside: Point, as_it_is: Point) -> Point:
    """With copies beside the training, by which nothing becomes slower, or as it is."""
    found, least = beside.prediction, as_it_is.prediction
    return replace(
        beside,
        prediction=replace(
            found,
            rate=max(found.rate, least.rate),
            low=min(found.low, least.low),
            high=max(found.high, least.high),
        ),
    )


def knee(points: Sequence[Point]) -> Point | None:
    """The first of a sweep in growing order that reaches 99 % of its best."""
    best = max((point.prediction.rate for point in points), default=0.0)
    return next((point for point in points if point.prediction.rate >= NEAR * best), None)


def helps(profile: Profile) -> list[tuple[str, Point]]:
    """What people may do about a program that waits for its data, each by itself."""
    now = profile.resources
    ways = [
        (
            f"{more} more cores ({now.workers + more} workers)",
            replace(now, cores=now.cores + more, workers=now.workers + more),
        )
        for more in (2, 4, 8)
    ]
    if now.workers < now.cores:
        enough = max(1, round(now.cores))
        ways.append((f"num_workers={enough}, same cores", replace(now, workers=enough)))
    else:
        ways.append((f"num_workers={2 * now.workers}", replace(now, workers=2 * now.workers)))
    storage = profile.storage
    if storage is not None and storage.total_bytes and storage.hits < 1:
        ways.append(
            (
                f"a cache of {storage.total_bytes / 2**30:.3g} GiB for all files",
                replace(now, cache_bytes=storage.total_bytes),
            )
        )
    ways += [
        (f"{number} data worker{'s' if number > 1 else ''}", replace(now, data_workers=number))
        for number in (1, 2, 4)
    ]
    found = [(name, what_if(profile, [resources])[0]) for name, resources in ways]
    if profile.copy_seconds:
        beside = what_if(profile, [now], overlap_copies=True)[0]
        found.insert(0, (COPIES_BESIDE, beside))
    return found
