"""How many data workers at once, and what is learnt when they are there.

FastFlow (PVLDB 16(5), section 9) proposes a number from one measurement and a correction at run
time; its code computes the correction and does not carry it out. Here a correction is what one
window of the running job says of the costs that the profile had: each is scaled so that the model
is right where the job is now, and the decision is taken again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.throughput.errors import ProfileError
from penstock.throughput.limits.capacity import Placement, bounds, remote_cores_rate
from penstock.throughput.limits.cut import split
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost


@dataclass(frozen=True, slots=True)
class Seen:
    """What a job did in one window.

    Attributes:
        rate: samples a second.
        busy_cores: of the training pod.
        remote_busy_cores: of the data workers.
        accelerator_waits: the training waited for data for more than a moment.
    """

    rate: float
    busy_cores: float
    remote_busy_cores: float
    accelerator_waits: bool


def fastflow_number(accelerator: float, local: float, remote_of_one: float, overhead: float) -> int:
    """``ceil(Lower / Rthp of one worker)`` (FastFlow, section 9).

    Args:
        accelerator: Gthp.
        local: Lthp.
        remote_of_one: Rthp with one worker.
        overhead: Ocycle / Pcycle.
    """
    missing = max(0.0, accelerator - local) * (1 + overhead)
    return math.ceil(missing / remote_of_one - 1e-9) if remote_of_one > 0 else 0


def correct(
    profile: Profile, resources: Resources, placement: Placement, seen: Seen
) -> tuple[Profile, Resources]:
    """A profile and resources under which the model says what was seen.

    Local costs are scaled by what the cores of the training pod did for each sample, remote ones by
    what data workers did. A limit that nobody is at cannot be seen; where neither cores nor the
    accelerator explain the rate, the network does.

    Raises:
        ProfileError: nothing was made in the window, which says nothing of what anything costs.
    """
    if seen.rate <= 0:
        raise ProfileError(f"rate: {seen.rate} samples a second; nothing can be learnt of that")
    found = bounds(profile, resources, placement)
    here = seen.busy_cores * found["cores"] / (seen.rate * resources.cores)
    stages = tuple(_scaled(stage, here) for stage in profile.stages)
    transport = replace(
        profile.transport, receive_cpu_seconds=profile.transport.receive_cpu_seconds * here
    )
    corrected = replace(
        profile, stages=stages, transport=transport, step_cores=profile.step_cores * here
    )
    share = placement.share if placement.cut.moves and resources.data_workers else 0.0
    if share and "data workers" in found:
        cores = resources.data_workers * resources.data_worker_cores
        parts = split(corrected.stages, placement.cut)
        there = remote_cores_rate(corrected, resources, parts) / share
        wanted = cores * seen.rate / max(seen.remote_busy_cores, 1e-12)
        resources = replace(
            resources, data_worker_speed=resources.data_worker_speed * wanted / there
        )
    if not seen.accelerator_waits:
        step = corrected.batch_size / seen.rate - corrected.hand_over_seconds
        if step > 0:
            factor = step / corrected.step.value
            corrected = replace(
                corrected,
                step=corrected.step.scaled(factor),
                step_cores=corrected.step_cores / factor,
            )
    elif share and not _explained(seen, resources):
        parts = split(corrected.stages, placement.cut)
        moved = max(parts.bytes_in, parts.bytes_out) * share * seen.rate
        resources = replace(resources, network_bytes_per_second=max(1.0, moved))
    return corrected, resources


def _explained(seen: Seen, resources: Resources) -> bool:
    """Whether somebody's cores are all busy."""
    remote = resources.data_workers * resources.data_worker_cores
    return seen.busy_cores > 0.93 * resources.cores or seen.remote_busy_cores > 0.93 * remote


def _scaled(stage: StageCost, factor: float) -> StageCost:
    return replace(stage, cpu_seconds=stage.cpu_seconds * factor)
