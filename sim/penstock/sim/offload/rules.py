"""The rules that are compared: each says which share of a job's batches to make elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.sim.offload.systems import System
from penstock.throughput.decision import fastflow
from penstock.throughput.decision.offload import decide
from penstock.throughput.decision.sizing import Seen, correct
from penstock.throughput.limits.capacity import Placement, binding, bounds

TRIED_GAIN: Final = 0.07
"""What promises less is not tried: the threshold of 10 %, less what the figures are wrong by."""
KEPT_GAIN: Final = 0.05
"""What was tried is kept unless it misses the promised 10 % by more than half."""
WINDOW_NOISE: Final = 0.01
"""Of a rate that is counted over a window of 30 s."""

Rule = Callable[[System], float]


def metrics_of(system: System) -> fastflow.Metrics:
    """What FastFlow's profiling finds, exactly (its Table 1)."""
    profile = system.profile
    loop = profile.step.value * profile.step_cores
    receive = profile.transport.receive_cpu_seconds * profile.stages[0].bytes_out
    return fastflow.Metrics(
        accelerator=system.accelerator,
        local=system.rate(0.0),
        remote=system.rate(1.0),
        overhead=(loop + receive) / (loop + profile.cpu_seconds),
    )


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the model chooses at first, and after a look at the running job."""

    first: float
    corrected: float


def ours(system: System, noise: float, source: np.random.Generator, seen_as: System) -> Chosen:
    """Decide on what was measured; then run, look, correct once, and keep what was better."""
    limits = seen_as.resources
    decision = decide(seen_as.profile, limits, least_gain=TRIED_GAIN)
    first = decide(seen_as.profile, limits)
    taken = first.chosen.placement.share if first.moves else 0.0
    if not decision.moves:
        return Chosen(taken, 0.0)
    placement, number = decision.chosen.placement, decision.chosen.data_workers
    seen = _look(system, placement, number, noise, source)
    there = replace(limits, data_workers=number)
    profile, resources = correct(seen_as.profile, there, placement, seen)
    again = decide(
        profile, replace(resources, data_workers=limits.data_workers), least_gain=TRIED_GAIN
    )
    tried = {(0.0, 0): system.rate(0.0), (placement.share, number): seen.rate}
    if again.moves:
        share, more = again.chosen.placement.share, again.chosen.data_workers
        tried[share, more] = _look(system, again.chosen.placement, more, noise, source).rate
    (share, number), rate = max(tried.items(), key=lambda one: one[1])
    if rate < tried[0.0, 0] * (1 + KEPT_GAIN):
        share, number = 0.0, 0
    return Chosen(taken, share)


def _look(
    system: System,
    placement: Placement,
    number: int,
    noise: float,
    source: np.random.Generator,
) -> Seen:
    """One window of the running job."""
    resources = replace(system.resources, data_workers=number)
    found = bounds(system.profile, resources, placement)
    rate = min(found.values())
    busy = resources.cores * rate / found["cores"]
    remote = number * resources.data_worker_cores * rate / found["data workers"]
    wrong = source.normal(1.0, min(noise, WINDOW_NOISE), 3)
    return Seen(
        rate=rate * float(wrong[0]),
        busy_cores=busy * float(wrong[1]),
        remote_busy_cores=remote * float(wrong[2]),
        accelerator_waits=binding(found) != "accelerator",
    )


def others() -> dict[str, Rule]:
    """Rules that FastFlow's authors give or compare with; on exact figures, with all workers."""
    return {
        "FastFlow, as printed": lambda system: fastflow.paper_ratio(metrics_of(system)),
        "FastFlow, its code": lambda system: fastflow.code_ratio(metrics_of(system)),
        "half": lambda system: 0.5,
        "all": lambda system: 1.0,
        "nothing": lambda system: 0.0,
    }
