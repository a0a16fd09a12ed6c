"""A profile from what was seen of one loader.

Costs are of a core that nobody else slows down: CPU seconds grow with the number of busy cores
(memory, caches, hyperthreads), and how much is learnt from the batches that were made while the
training stood still. Blocked time is storage's, mostly; waiting for a core is neither, and is what
the closed loop computes by itself.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Final

from penstock.throughput.errors import ProfileError
from penstock.throughput.loop.prediction import at_measured
from penstock.throughput.loop.stalls import (
    FETCH,
    HAND_OVER,
    TOO_FEW_CORES,
    Span,
    Window,
    attribute,
)
from penstock.throughput.observations.copies import (
    HOST_TO_DEVICE,
    held_up,
    notes_on,
    seconds_of_byte,
)
from penstock.throughput.observations.misses import ColdReads, cpu_of_miss
from penstock.throughput.observations.new_memory import (
    NOT_KNOWN,
    NewMemory,
    pages_given_back,
)
from penstock.throughput.observations.records import DATASET, IN_LINE, Delivery, Loader, Made
from penstock.throughput.observations.session import Phase
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import MOST_STAGES, Profile, Storage
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

COLLATE: Final = "collate"
HAND_OVER_WORK: Final = "hand over"
LEAST_BATCHES: Final = 5
BLOCKS: Final = 10
"""Neighbouring batches are not independent: intervals are of the means of so many runs of them."""
QUANTILES: Final = 64
SURE: Final = 2.0
"""Standard errors by which making a batch has to be dearer beside the training, to be so."""
MOST_CONTENTION: Final = 0.3
READS_NOTHING: Final = 512.0
"""Bytes a sample below which no dataset reads files; queues and pipes are counted too."""
MISMATCH: Final = 0.1
UNSURE: Final = 0.2
"""Of a step: one that is known so badly is said to be."""
MOST_COPYING: Final = 0.95
"""Of a step: no training is copies alone."""
MOST_RELEASING: Final = 0.5
"""Of a step."""
MOST_REFILLING: Final = 0.5
"""Of a step."""
REFILLING: Final = 0.1
"""Of a step, above which it is said."""
HELD_UP: Final = 2.0
"""So many times the usual step no step takes by itself."""
CROWDED: Final = 0.1
"""Of the time that makers want a core: who waits for one that long hands over late for it, too."""
_ENDED: Final = "the program ended too early; give it more steps"
_WINDOW_UNFILLED: Final = (
    "the program ended too early, or its epochs are shorter than what its loader has under way; "
    "give it more epochs, or a smaller num_workers"
)
FOREIGN: Final = 0.1
"""Of the cores; less of other programs is always there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All of one loader in one training process.

    Attributes:
        program: the script's name.
        loader: as it was made.
        cores: that the program may use.
        deliveries, made: in the order of time.
        busy: cores of the machine that were busy while the program ran as alone; 0: not known.
        reading: what cold reads cost; None: not known.
        memory: what such that is new costs.
        keys: of the profile.
        pinning: when batches were copied into pinned memory, in the order of time.
    """

    program: str
    loader: Loader
    cores: float
    deliveries: Sequence[Delivery]
    made: Sequence[Made]
    busy: float = 0.0
    reading: ColdReads | None = None
    memory: NewMemory = NOT_KNOWN
    keys: Mapping[str, str] | None = None
    pinning: Sequence[tuple[float, float]] = ()


def profile_of(seen: Seen) -> Profile:
    """The profile.

    Raises:
        ProfileError: too little was seen; the text says what to do.
    """
    notes: list[str] = []
    loader = seen.loader
    normal = _pairs(seen.deliveries, Phase.NORMAL)
    if len(normal) < LEAST_BATCHES:
        raise ProfileError(
            f"{len(normal)} batches of {loader.dataset} were measured, and {LEAST_BATCHES} are the "
            f"least: {_WINDOW_UNFILLED if loader.workers else _ENDED}"
        )
    made = [one for one in seen.made if one.samples > 0 and one.as_it_runs]
    if not made:
        raise ProfileError(f"no batch of {loader.dataset} was seen being made")
    size = _batch_size(loader, made)
    periods = [later.returned - earlier.returned for earlier, later in normal]
    rate = _of_blocks(periods).inverse().scaled(size)
    waited = sum(later.waited for _, later in normal)
    drained = _pairs(seen.deliveries, Phase.DRAIN)
    if not drained:
        notes.append("G is that of steps beside the loader's work: none were seen without it")
    step = _step(drained, normal)
    refill = _refill(seen, drained or normal, step.value)
    if refill > REFILLING * step.value:
        notes.append(
            f"{refill / step.value:.0%} of a training step go into filling memory that its "
            "allocator has given back to the system: with glibc MALLOC_MMAP_MAX_=0 and "
            "MALLOC_TRIM_THRESHOLD_=17179869184 keep it, if there is room"
        )
    if not loader.workers:
        step = replace(step, low=min(step.low, step.value - refill))
    step_cores = _busy_cores(drained or normal)
    contention, base = _contention(seen, made, normal)
    others, foreign = _others(seen, normal)
    if foreign > FOREIGN * seen.cores:
        notes.append(
            f"other programs had {foreign:.1f} of {seen.cores:g} cores meanwhile; predictions "
            "assume that they go on: profile again without them if they will not"
        )
    notes += notes_on([copies for one in seen.deliveries for copies in one.copies])
    copied = sum(_copied(seen, normal))
    settled = _settled(seen.deliveries, made)
    stages = _stages(settled, base, made)
    profile = Profile(
        program=seen.program,
        batch_size=size,
        stages=_sized(stages, seen.deliveries, size),
        step=step,
        rate=rate,
        stalled=min(1.0, (waited + copied) / sum(periods)),
        resources=Resources(seen.cores, loader.workers, max(1, loader.prefetch)),
        step_cores=min(step_cores, seen.cores),
        copy_seconds=min(fmean(_copied(seen, drained or normal)), MOST_COPYING * step.value),
        hand_over_seconds=_hand_over(drained),
        sharing_cpu_seconds=_sharing(seen, stages, size),
        release_seconds=_release(seen, step.value),
        spread=_spread(settled),
        contention=contention,
        others=others,
        in_turn=loader.in_turn,
        storage=_storage(seen, settled),
        causes=_causes(seen, normal, made, sum(periods), _hand_over(drained), copied),
        keys=dict(seen.keys or {}),
        notes=tuple(notes),
    )
    return _checked(profile)


def _pairs(deliveries: Sequence[Delivery], phase: Phase) -> list[tuple[Delivery, Delivery]]:
    """Neighbours of one phase and one epoch: what lies between them is one step and one wait."""
    return [
        (earlier, later)
        for earlier, later in pairwise(deliveries)
        if earlier.phase is later.phase is phase and not later.first
    ]


def _settled(deliveries: Sequence[Delivery], made: Sequence[Made]) -> Sequence[Made]:
    """Without what was begun while a loader warmed up.

    A worker's first batches load libraries and fill caches, which no later batch does; the rate
    that was measured is without them too.
    """
    warm_ups, before = [], -math.inf
    for one in deliveries:
        if one.phase is Phase.WARM_UP:
            warm_ups.append((before, one.returned))
        before = one.returned
    found = [one for one in made if not any(a <= one.begin < b for a, b in warm_ups)]
    return found if len(found) >= LEAST_BATCHES else made


def _batch_size(loader: Loader, made: Sequence[Made]) -> int:
    return loader.batch_size or max(1, round(fmean(one.samples for one in made)))


def _of_blocks(values: Sequence[float]) -> Measured:
    count = min(BLOCKS, len(values) // 2)
    if count < 2:
        return Measured.mean_of(values)
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    found = Measured.mean_of([fmean(values[low:high]) for low, high in pairwise(edges)])
    middle = fmean(values)
    shift = middle - found.value
    low = max(found.low + shift, min(values))
    return Measured(middle, min(low, middle), found.high + shift, len(values))


def _step(
    drained: Sequence[tuple[Delivery, Delivery]], normal: Sequence[tuple[Delivery, Delivery]]
) -> Measured:
    """Seconds of the training for one batch.

    A drain has few steps, so that one which the machine held up (`HELD_UP`) is left out; and the
    training is never slower without the loader's work than beside it.
    """
    beside = _of_blocks([_trained(earlier, later) for earlier, later in normal])
    alone = [_trained(earlier, later) for earlier, later in drained]
    if not alone:
        return beside
    usual = median(alone)
    found = Measured.mean_of([one for one in alone if one <= HELD_UP * usual])
    return found if found.value <= beside.value else beside


def _trained(earlier: Delivery, later: Delivery) -> float:
    return max(1e-9, later.called - earlier.returned - later.looked)


def _refill(seen: Seen, pairs: Sequence[tuple[Delivery, Delivery]], step: float) -> float:
    """Seconds of a step to fill memory that was given back to the system before.

    Where the training makes its batches itself these may end with that: what is freed between the
    steps decides whether glibc has more free at the end of its heap than it keeps.
    """
    pages = median(later.faults for _, later in pairs)
    return min(pages * seen.memory.page, MOST_REFILLING * step)


def _copied(seen: Seen, pairs: Sequence[tuple[Delivery, Delivery]]) -> list[float]:
    """Seconds of each step for which a copy to a device held the training up."""
    each_byte = seconds_of_byte(copies for one in seen.deliveries for copies in one.copies)
    return [
        held_up(later.copies, each_byte, later.called - earlier.returned)
        for earlier, later in pairs
    ]


def _busy_cores(pairs: Sequence[tuple[Delivery, Delivery]]) -> float:
    busy = sum(later.cpu_called - earlier.cpu_returned for earlier, later in pairs)
    time = sum(later.called - earlier.returned for earlier, later in pairs)
    return max(0.0, busy / time) if time > 0 else 0.0


def _hand_over(drained: Sequence[tuple[Delivery, Delivery]]) -> float:
    """Of a batch that is ready; the median, since one may have been a moment late."""
    waits = sorted(later.waited for _, later in drained)
    return waits[len(waits) // 2] if waits else 0.0


def _contention(
    seen: Seen, made: Sequence[Made], normal: Sequence[tuple[Delivery, Delivery]]
) -> tuple[float, float]:
    """Growth of CPU costs per further busy core, and what to divide measured ones by."""
    begin, end = normal[0][0].returned, normal[-1][1].returned
    beside = [one for one in made if begin <= one.begin and one.end <= end]
    fills = _fills(seen.deliveries)
    alone = [one for one in made if any(a <= one.begin and one.end <= b for a, b in fills)]
    training = sum(later.cpu_called - earlier.cpu_returned for earlier, later in normal)
    if not beside:
        return 0.0, 1.0
    busy = (sum(one.cpu + one.other_cpu for one in beside) + training) / (end - begin)
    busy = min(busy, seen.cores)
    if len(alone) < 4 or len(beside) < 4:
        return 0.0, 1.0
    length = sum(b - a for a, b in fills)
    quiet = min(sum(one.cpu + one.other_cpu for one in alone) / length, seen.cores)
    ratio = _cpu_of(beside) / max(_cpu_of(alone), 1e-12)
    if busy - quiet < 0.25 or ratio <= 1 + SURE * math.hypot(_spread_of(beside), _spread_of(alone)):
        return 0.0, 1.0
    # ratio = (1 + k (busy - 1)) / (1 + k (quiet - 1)), never below one core
    over, under = max(0.0, busy - 1), max(0.0, quiet - 1)
    k = (ratio - 1) / max(over - ratio * under, 1e-9) if over > ratio * under else MOST_CONTENTION
    k = min(MOST_CONTENTION, max(0.0, k))
    return k, 1 + k * over


def _spread_of(made: Sequence[Made]) -> float:
    """Standard error of the mean CPU cost of a sample, as a share of it."""
    costs = [one.cpu / one.samples for one in made]
    mean = fmean(costs)
    return stdev(costs) / math.sqrt(len(costs)) / mean if mean > 0 else 0.0


def _others(seen: Seen, normal: Sequence[tuple[Delivery, Delivery]]) -> tuple[float, float]:
    """Threads of other programs that wanted a core, and how many cores they had."""
    begin, end = normal[0][0].returned, normal[-1][1].returned
    beside = [one for one in seen.made if begin <= one.begin and one.end <= end]
    if not seen.busy or not beside:
        return 0.0, 0.0
    training = sum(later.cpu_called - earlier.cpu_called for earlier, later in normal)
    making = sum(one.cpu + one.other_cpu for one in beside if one.maker != IN_LINE)
    own = (training + making) / (end - begin)
    foreign = max(0.0, seen.busy - own)
    cpu = sum(one.cpu for one in beside)
    on_core = cpu / max(cpu + sum(one.queued for one in beside), 1e-12)
    return foreign / max(on_core, 0.1), foreign


def _cpu_of(made: Sequence[Made]) -> float:
    return sum(one.cpu for one in made) / sum(one.samples for one in made)


def _fills(deliveries: Sequence[Delivery]) -> list[tuple[float, float]]:
    """When delivery was withheld, and the training stood still."""
    return [(one.called - one.held, one.called) for one in deliveries if one.held]


def _stages(made: Sequence[Made], base: float, sized: Sequence[Made]) -> list[StageCost]:
    """Costs of batches, and sizes of those that were looked at, which are the first."""
    samples = sum(one.samples for one in made)
    total = sum(one.cpu for one in made) / samples / base
    blocked = sum(one.blocked for one in made) / samples
    collate = sum(one.collate_cpu for one in made) / samples / base
    other = sum(one.other_cpu for one in made) / samples / base
    found = dict.fromkeys(name for one in made for name in one.stages)
    names = list(found)[: MOST_STAGES - len((DATASET, COLLATE, HAND_OVER_WORK))]
    composed = []
    for name in names:
        seen = [one.stages[name] for one in made if name in one.stages]
        size = _size_after(name, sized)
        composed.append(StageCost(name, "transform", fmean(seen) / base, bytes_out=size))
    room = max(0.0, total - collate)
    of_stages = sum(stage.cpu_seconds for stage in composed)
    if of_stages > room and of_stages > 0:
        composed = [
            replace(stage, cpu_seconds=stage.cpu_seconds * room / of_stages) for stage in composed
        ]
        of_stages = room
    first = StageCost(DATASET, "opaque", room - of_stages, blocked, _size_after(DATASET, sized))
    stages = [first, *composed, StageCost(COLLATE, "collate", min(collate, total))]
    if other > 0.01 * total:
        stages.append(StageCost(HAND_OVER_WORK, "transform", other))
    return stages


def _size_after(stage: str, made: Sequence[Made]) -> float:
    """Bytes of a sample after a stage; 0: nobody looked, or it cannot be cut there."""
    sizes = [one.sizes[stage] for one in made if stage in one.sizes]
    return fmean(sizes) if sizes else 0.0


def _sized(
    stages: Sequence[StageCost], deliveries: Sequence[Delivery], size: int
) -> tuple[StageCost, ...]:
    """With the bytes of a batch after the last stages."""
    sizes = [one.nbytes for one in deliveries if one.nbytes]
    each = fmean(sizes) / size if sizes else 0.0
    done = [stage.name for stage in stages].index(COLLATE)
    return tuple(
        replace(stage, bytes_out=each) if index >= done else stage
        for index, stage in enumerate(stages)
    )


def _sharing(seen: Seen, stages: Sequence[StageCost], size: int) -> float:
    """What a sample costs more if a worker makes it: new memory, shared and own, and handing over.

    How much new memory of its own a worker would need is not known where there was none.
    """
    filling = _bytes_of_batch(seen) / size * seen.memory.shared_byte
    if not seen.loader.workers:
        return filling
    cost = {stage.name: stage.cpu_seconds for stage in stages}
    own = pages_given_back([one for one in seen.made if one.samples > 0]) * seen.memory.page
    making = sum(cost.values()) - cost[COLLATE] - cost.get(HAND_OVER_WORK, 0.0)
    return min(filling, cost[COLLATE]) + cost.get(HAND_OVER_WORK, 0.0) + min(own, making)


def _release(seen: Seen, step: float) -> float:
    """Seconds for which the training gives the shared memory of a worker's batch back."""
    freeing = _bytes_of_batch(seen) * seen.memory.shared_byte_freed
    return min(freeing, MOST_RELEASING * step) if seen.loader.workers else freeing


def _bytes_of_batch(seen: Seen) -> float:
    sizes = [one.nbytes for one in seen.deliveries if one.nbytes]
    return fmean(sizes) if sizes else 0.0


def _spread(made: Sequence[Made]) -> tuple[float, ...]:
    times = sorted((one.cpu + one.blocked) / one.samples for one in made)
    mean = fmean(times)
    if mean <= 0:
        return (1.0,)
    if len(times) > QUANTILES:
        times = [times[int((i + 0.5) * len(times) / QUANTILES)] for i in range(QUANTILES)]
    mean = fmean(times)
    return tuple(round(one / mean, 4) for one in times)


def _storage(seen: Seen, made: Sequence[Made]) -> Storage | None:
    samples = sum(one.samples for one in made)
    each = sum(one.read for one in made) / samples
    if each < READS_NOTHING:
        return None
    missed = sum(one.missed for one in made) / samples
    cold = seen.reading
    return Storage(
        bytes_per_sample=each,
        total_bytes=each * seen.loader.samples,
        hits=max(0.0, 1 - missed / each),
        cold_seconds=cold.blocked_per_byte * each if cold else 0.0,
        cold_bytes_per_second=cold.bytes_per_second if cold else 0.0,
        cold_cpu_seconds=cpu_of_miss(cold, each, seen.made) if cold else 0.0,
    )


def _causes(
    seen: Seen,
    normal: Sequence[tuple[Delivery, Delivery]],
    made: Sequence[Made],
    time: float,
    hand_over: float,
    copied: float,
) -> dict[str, float]:
    awaited = _awaited(seen.deliveries, made)
    windows = [
        Window(later.called, later.returned, later.maker, awaited.get(id(later), math.inf))
        for _, later in normal
    ]
    spans = [span for one in made for span in _spans(one)]
    on_core, queued = sum(one.cpu for one in made), sum(one.queued for one in made)
    crowded = seen.loader.workers > 0 and queued > CROWDED * (on_core + queued)
    late = TOO_FEW_CORES if crowded else HAND_OVER
    found = attribute(windows, spans, hand_over, late, seen.pinning)
    found[HOST_TO_DEVICE] = copied
    return {cause: seconds / time for cause, seconds in found.items() if seconds > 0}


def _awaited(deliveries: Sequence[Delivery], made: Sequence[Made]) -> dict[int, float]:
    """When each delivered batch was done, by the identity of its delivery.

    The batches of a maker come in the order in which it makes them. Those of an epoch that was left
    early never come: what was begun before the epoch before ended is not of this one.
    """
    waiting: dict[int, deque[Made]] = {}
    for one in sorted(made, key=lambda one: one.begin):
        waiting.setdefault(one.maker, deque()).append(one)
    found: dict[int, float] = {}
    before = -math.inf
    for delivery in deliveries:
        if delivery.first:
            for own in waiting.values():
                while own and own[0].begin < before:
                    own.popleft()
        own = waiting.get(delivery.maker, deque())
        if own and own[0].end <= delivery.returned:
            found[id(delivery)] = own.popleft().end
        before = delivery.returned
    return found


def _spans(one: Made) -> tuple[Span, Span]:
    """Making samples, and collating them, which comes last."""
    collate = min(one.collate_cpu, one.cpu)
    between = max(one.begin, one.end - max(one.collate_seconds, collate))
    cpu = max(0.0, one.cpu - one.collate_cpu)
    parts = {name: seconds * one.samples for name, seconds in one.stages.items()}
    known = sum(parts.values())
    if known > cpu > 0:
        parts = {name: seconds * cpu / known for name, seconds in parts.items()}
        known = cpu
    parts[DATASET] = cpu - known
    queued = min(one.queued, max(0.0, one.end - between - collate))
    parts[TOO_FEW_CORES] = one.queued - queued
    parts[FETCH] = max(0.0, between - one.begin - cpu - parts[TOO_FEW_CORES])
    last = {COLLATE: collate, TOO_FEW_CORES: queued}
    last[FETCH] = max(0.0, one.end - between - collate - queued)
    return _span(one.begin, between, one.maker, parts), _span(between, one.end, one.maker, last)


def _span(begin: float, end: float, maker: int, parts: Mapping[str, float]) -> Span:
    total = max(sum(parts.values()), end - begin, 1e-12)
    least = 1e-9 * total
    shares = {name: seconds / total for name, seconds in parts.items() if seconds > least}
    return Span(begin, end, maker, shares)


def _checked(profile: Profile) -> Profile:
    """With what the model misses of the very configuration that was measured."""
    error = at_measured(profile).rate / profile.rate.value - 1
    notes = profile.notes
    if (unsure := profile.step.relative_error) > UNSURE:
        note = (
            f"how long a step of the training takes is known to within {unsure:.0%} only, from "
            f"{profile.step.samples} of them; predictions are wider by that: profile again with "
            "nothing else on the machine"
        )
        notes = (*notes, note)
    if math.isfinite(error) and abs(error) > MISMATCH:
        note = (
            f"the model gives {1 + error:.0%} of the rate that was measured; predictions are wider "
            "by that, and something is not in the model (memory bandwidth, a lock, other load)"
        )
        notes = (*notes, note)
    return replace(profile, model_error=error, notes=notes)
