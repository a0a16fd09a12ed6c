"""What a program would do with other resources: a rate with its interval, and what binds it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from penstock.throughput.limits.capacity import HERE, Placement, binding, bounds, share_of
from penstock.throughput.limits.cut import WHOLE_BATCH, Cut, split
from penstock.throughput.limits.fetching import read_by
from penstock.throughput.limits.making import stages_at, step_at
from penstock.throughput.loop.closed_loop import Loop, simulate
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources

KNOWN_FACTOR: Final = 4.0
"""Up to so many times what was measured, a prediction is not widened."""
WIDENED: Final = 0.1
"""Of the rate, for each further doubling."""
CROWDED: Final = 0.5
"""Of the rate, the low end where several threads of the training may have to wait for a core."""
UNLIKE: Final = 0.15
"""Of the rate, either way, where batches were made by workers and are to be made in line, or the
other way round: a machine's caches and idle states differ, and shared memory is only estimated."""
SQUEEZED: Final = 0.8
"""Of the rate, the low end where workers and training want more cores than there are, and did not
when they were measured."""
WAKING: Final = 3.0
"""So many times longer a hand-over takes when no core is free as the training wakes: its worker and
its own threads answer each other, and wait for a core each time. As measured with Linux 6 on one
and two cores; elsewhere it may not have to wait, which is the high end of the interval."""
LEAST_ERROR: Final = 0.02
"""Of the model itself, where everything that goes into it is exact."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one configuration.

    Attributes:
        rate: samples a second.
        low, high: in 95 of 100 cases it is between them.
        stalled: share of the time in which the training waits, or copies to a device hold it up.
        binding: the resource that bounds the rate.
        extrapolated: it is far beyond what was measured, and the interval is wider for it.
    """

    rate: float
    low: float
    high: float
    stalled: float
    binding: str
    extrapolated: bool = False


def loop_of(profile: Profile, resources: Resources, placement: Placement = HERE) -> Loop:
    """The closed loop of a profile under other resources."""
    stages = stages_at(profile, resources)
    size = profile.batch_size
    share = share_of(resources, placement)
    makers = resources.data_workers if share else 0
    parts = split(read_by(stages, placement.cut, resources), placement.cut)
    transport = profile.transport
    away = parts.remote_cpu + transport.send_cpu_seconds * parts.bytes_in
    away += transport.receive_cpu_seconds * parts.bytes_out
    moved = max(parts.bytes_in, parts.bytes_out)
    here = 0.0 if parts.in_program else 1.0  # else it is the training's own, and part of a step
    stay = here * parts.local_cpu + transport.receive_cpu_seconds * parts.bytes_in
    stay += transport.send_cpu_seconds * parts.bytes_out
    each = max(1, round(resources.data_worker_cores))
    return Loop(
        workers=resources.workers,
        cores=resources.cores,
        window=max(1, resources.prefetch * (resources.workers + makers * each)),
        cpu=sum(stage.cpu_seconds for stage in stages) * size,
        blocked=sum(stage.blocked_seconds for stage in stages) * size,
        step=step_at(profile, resources) + share * parts.in_program * size,
        step_cores=profile.step_cores,
        hand_over=profile.hand_over_seconds * _waking(profile, resources, placement),
        spread=profile.spread,
        contention=profile.contention,
        others=_others_there(profile, resources),
        in_turn=profile.in_turn and not makers,
        makers=makers * each,
        away_cpu=away * size * each / (resources.data_worker_cores * resources.data_worker_speed),
        away_blocked=(parts.remote_blocked + here * parts.local_blocked) * size,
        link=moved * size / resources.network_bytes_per_second,
        receive=stay * size,
        share=share if makers and resources.workers else None,
    )


def predict(
    profile: Profile, resources: Resources, placement: Placement = HERE, *, seed: int = 0
) -> Prediction:
    """The rate of a program under other resources."""
    loop = loop_of(profile, resources, placement)
    middle = simulate(loop, seed=seed)
    found = bounds(profile, resources, placement)
    rate = min(middle.rate * profile.batch_size, *found.values())
    binds = binding(found)
    doubt = _doubt(profile, binds)
    beyond = _beyond(profile.resources, resources)
    doubt += WIDENED * beyond
    unlike = (resources.workers > 0) != (profile.resources.workers > 0)
    if unlike and not resources.data_workers:
        doubt += UNLIKE
    top = min(rate * (1 + doubt), found["accelerator"] * (1 + profile.step.relative_error + doubt))
    fewer = profile.step_cores > 1 and resources.cores < profile.resources.cores
    if fewer:  # threads of the training that wait for each other look busy, and may need no core
        calm = replace(profile, step_cores=1.0)
        least = min(bounds(calm, resources, placement).values())
        waiting = simulate(loop_of(calm, resources, placement), seed=seed).rate
        top = max(top, min(waiting * profile.batch_size, least) * (1 + doubt))
    if loop.hand_over > loop_of(profile, profile.resources).hand_over:
        # not seen: a scheduler may let the training go first
        prompt = simulate(replace(loop, hand_over=profile.hand_over_seconds), seed=seed).rate
        top = max(top, min(prompt * profile.batch_size, *found.values()) * (1 + doubt))
    crowded = _crowds_training(profile, resources)
    squeezed = _is_squeezed(resources, profile) and not _is_squeezed(profile.resources, profile)
    lowest = CROWDED if crowded else SQUEEZED if squeezed else 1.0
    return Prediction(
        rate=rate,
        low=max(0.0, rate * (1 - doubt) * lowest),
        high=max(rate, top),
        stalled=min(1.0, middle.stalled + profile.copy_seconds * rate / profile.batch_size),
        binding=binds,
        extrapolated=beyond > 0 or fewer or crowded or squeezed or unlike,
    )


def whole_batches(profile: Profile, resources: Resources, share: float) -> Placement:
    """So large a share of whole batches made elsewhere."""
    whole = Cut(WHOLE_BATCH, 0, len(profile.stages))
    return Placement(whole, share if resources.data_workers else 0.0)


def _others_there(profile: Profile, resources: Resources) -> float:
    """Threads of other programs that compete for these cores.

    They are counted where the program has all cores of its machine. With fewer of these the others
    have the rest to themselves, where they go first: schedulers move who waits to who is idle.
    """
    left = max(0.0, profile.resources.cores - resources.cores)
    return max(0.0, profile.others - left)


def _doubt(profile: Profile, binds: str) -> float:
    """Half of the interval, as a share: what was measured badly is known badly."""
    measured = profile.step if binds == "accelerator" else profile.rate
    return min(1.0, math.hypot(measured.relative_error, LEAST_ERROR, profile.model_error))


def _crowds_training(profile: Profile, resources: Resources) -> bool:
    """Whether more makers than were measured take cores from a training of several threads.

    Those wait for each other at every step, so that one without a core holds up all of them.
    """
    now, wanted = profile.resources, resources.workers + profile.step_cores
    more = resources.workers > now.workers or resources.cores < now.cores
    return profile.step_cores > 1 and more and wanted > resources.cores


def _is_squeezed(resources: Resources, profile: Profile) -> bool:
    return resources.workers > 0 and resources.workers + max(1.0, profile.step_cores) > (
        resources.cores
    )


def _waking(profile: Profile, resources: Resources, placement: Placement) -> float:
    """How much longer a hand-over takes than with a core free for everybody.

    Each maker is on a core for a part of the time that follows from the bounds; that all cores are
    taken at a moment is a matter of so many independent makers.
    """
    workers, cores = resources.workers, max(1, math.floor(resources.cores))
    if workers < cores:
        return 1.0
    rate = min(bounds(profile, resources, placement).values())
    busy = min(1.0, rate * profile.cpu_seconds / workers)
    return 1 + WAKING * (1 - _fewer_than(cores, workers, busy))


def _fewer_than(cores: int, workers: int, busy: float) -> float:
    """The chance that fewer than so many of the workers are busy at once: a binomial's.

    Its terms are products of figures that no float holds, and sums of their logarithms.
    """
    if busy in (0.0, 1.0):  # nobody ever, or all of them always, who are no fewer than the cores
        return 1.0 - busy
    of_all = math.lgamma(workers + 1)
    found = math.fsum(
        math.exp(
            of_all
            - math.lgamma(count + 1)
            - math.lgamma(workers - count + 1)
            + count * math.log(busy)
            + (workers - count) * math.log1p(-busy)
        )
        for count in range(cores)
    )
    return min(1.0, found)


def _beyond(before: Resources, now: Resources) -> float:
    """Doublings beyond what a measurement vouches for, of the axis that goes farthest."""
    ratios = [now.cores / before.cores]
    if before.workers and now.workers:
        ratios.append(now.workers / before.workers)
    return max(0.0, *(math.log2(ratio / KNOWN_FACTOR) for ratio in ratios))


def at_measured(profile: Profile) -> Prediction:
    """What the model says of the configuration that was measured: to be compared with its rate."""
    return predict(profile, replace(profile.resources))
