"""What making a sample costs where it is to be made: by workers, or by the training itself.

A worker fills new shared memory, whose every page is a fault, and hands it over; and what it frees
of its own memory may have to be filled again. The training that makes its own batches does neither,
nor does it give shared memory back. For batches of some megabytes that is half of their cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.throughput.limits.fetching import with_cache
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

LEAST_OF_STEP: Final = 0.05
"""No step is less of itself for what is taken off it."""


def step_at(profile: Profile, resources: Resources) -> float:
    """Seconds of the training for one batch, made by whom these resources name."""
    step, before, now = profile.step.value, profile.resources.workers, resources.workers
    if bool(before) == bool(now):
        return step
    if now:
        return step + profile.release_seconds
    return max(LEAST_OF_STEP * step, step - profile.release_seconds)


def stages_at(profile: Profile, resources: Resources) -> tuple[StageCost, ...]:
    """The stages with these resources: reading as their cache allows, made by whom they name."""
    stages = with_cache(profile, resources)
    before, now = bool(profile.resources.workers), bool(resources.workers)
    if before == now or not profile.sharing_cpu_seconds:
        return stages
    if now:
        last = stages[-1]
        dearer = replace(last, cpu_seconds=last.cpu_seconds + profile.sharing_cpu_seconds)
        return (*stages[:-1], dearer)
    left, found = profile.sharing_cpu_seconds, []
    for stage in reversed(stages):  # it is done with what is last
        taken = min(left, stage.cpu_seconds)
        left -= taken
        found.append(replace(stage, cpu_seconds=stage.cpu_seconds - taken) if taken else stage)
    return tuple(reversed(found))
