"""Sweeps over resources, and the knee: the least of a resource that nearly reaches the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.throughput.decision.offload import decide
from penstock.throughput.limits.capacity import Placement
from penstock.throughput.loop.prediction import Prediction, predict
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources

NEAR: Final = 0.99


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration and what the program would do with it."""

    resources: Resources
    placement: Placement
    prediction: Prediction


def what_if(profile: Profile, configurations: Iterable[Resources]) -> list[Point]:
    """The prediction of each; where data workers are given, with the best use of them."""
    points = []
    for resources in configurations:
        placement = Placement()
        if resources.data_workers:
            chosen = decide(profile, resources, least_gain=0.0).chosen
            placement = chosen.placement
        points.append(Point(resources, placement, predict(profile, resources, placement)))
    return points


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
    return [(name, what_if(profile, [resources])[0]) for name, resources in ways]
