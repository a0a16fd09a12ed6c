"""A profile of a job that runs, from what its training processes count of their input.

Nothing is held back and nobody is asked to do anything: these are sums over some interval of the
running job. So two figures are rougher than `penstock profile` has them. The step is the time for
which the training did not wait, which on an accelerator that works asynchronously is too short
where the program does not wait for it; and the pipeline is one stage. The model is compared with
the rate that was seen, and what it misses by is in the profile (``model_error``) and widens every
interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.throughput.limits.capacity import HERE, Placement
from penstock.throughput.loop.prediction import predict, whole_batches
from penstock.throughput.loop.stalls import FETCH, HAND_OVER, TOO_FEW_CORES
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile, Storage, Transport
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

PREPARATION: Final = "preparation"
LEAST_BATCHES: Final = 8
"""Fewer say nothing of a job."""
LEAST_MISSES: Final = 4096.0
"""Bytes a batch from storage below which nothing is read from there."""
ERROR: Final = 0.05
"""Of a figure that is a mean over seconds of a running job."""


@dataclass(frozen=True, slots=True)
class Making:
    """What the makers of one place did: sums over the batches of an interval."""

    batches: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    queued_seconds: float = 0.0
    storage_bytes: float = 0.0

    @property
    def blocked_seconds(self) -> float:
        """Waiting for what is no core."""
        return max(0.0, self.seconds - self.cpu_seconds - self.queued_seconds)

    def __add__(self, other: Making) -> Making:
        """Both together."""
        return Making(
            self.batches + other.batches,
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
            self.queued_seconds + other.queued_seconds,
            self.storage_bytes + other.storage_bytes,
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """One training process over some seconds.

    Attributes:
        seconds: its length.
        taken: batches that the program took.
        waited_seconds: of the program, for batches; its own making of them is waiting, too.
        cpu_seconds: of the training process, all threads.
        received_bytes: over the network.
        batch_bytes: of one batch; 0: unknown.
        cores: that its pod may use.
        workers: local ones.
        data_workers: that serve the whole job.
        data_worker_cores: of each.
        in_line, local, remote: by whom batches were made.
        cut: what data workers made of each in the end; "": nothing.
    """

    seconds: float
    taken: float
    waited_seconds: float
    cpu_seconds: float
    received_bytes: float
    batch_bytes: float
    cores: float
    workers: int
    data_workers: int = 0
    data_worker_cores: float = 1.0
    in_line: Making = field(default_factory=Making)
    local: Making = field(default_factory=Making)
    remote: Making = field(default_factory=Making)
    cut: str = ""


def profile_of(program: str, processes: Sequence[Interval]) -> Profile | None:
    """The profile of a typical process; None where too little was seen.

    In data-parallel training everybody waits for the slowest: the process that waits most for its
    input is the one that holds the others up.

    Args:
        program: its name.
        processes: the same interval of each training process that takes batches.
    """
    takers = [one for one in processes if one.taken >= LEAST_BATCHES and one.seconds > 0]
    if not takers:
        return None
    slowest = max(takers, key=lambda one: one.waited_seconds / one.seconds)
    here = slowest.in_line + slowest.local
    source = here if here.batches >= 1 else slowest.remote
    if source.batches < 1 or slowest.batch_bytes <= 0:
        return None  # of what size a batch is decides whether it may be made elsewhere
    waited = min(slowest.waited_seconds, slowest.seconds * 0.999)
    transport_cpu = Transport().receive_cpu_seconds * slowest.received_bytes
    training = slowest.cpu_seconds - slowest.in_line.cpu_seconds - transport_cpu
    each = max(1, round(slowest.data_workers / len(takers))) if slowest.data_workers else 0
    rate = slowest.taken / slowest.seconds
    step = (slowest.seconds - waited) / slowest.taken
    cpu = source.cpu_seconds / source.batches
    profile = Profile(
        program=program,
        batch_size=1,
        stages=(
            StageCost(
                "dataset",
                "opaque",
                cpu,
                source.blocked_seconds / source.batches,
                bytes_out=slowest.batch_bytes,
            ),
        ),
        step=_about(step),
        rate=_about(rate),
        stalled=waited / slowest.seconds,
        resources=Resources(
            cores=max(slowest.cores, 0.1),
            workers=slowest.workers,
            data_workers=each,
            data_worker_cores=max(slowest.data_worker_cores, 0.1),
            data_worker_speed=_speed(source, slowest.remote),
        ),
        step_cores=min(max(0.0, training / (slowest.seconds - waited)), slowest.cores),
        in_turn=False,
        storage=_storage(source),
        causes=_causes(waited / slowest.seconds, slowest.in_line + slowest.local + slowest.remote),
        notes=("measured while the job runs: the step is the time between two waits",),
        processes=len(takers),
        cut=slowest.cut if slowest.remote.batches >= 1 else "",
    )
    error = predict(profile, profile.resources, placement_of(slowest, profile)).rate / rate - 1
    return replace(profile, model_error=error if math.isfinite(error) else 1.0)


def placement_of(interval: Interval, profile: Profile) -> Placement:
    """Where batches were made."""
    made = interval.in_line.batches + interval.local.batches + interval.remote.batches
    if not interval.remote.batches or not profile.resources.data_workers:
        return HERE
    return whole_batches(profile, profile.resources, interval.remote.batches / made)


def _about(value: float) -> Measured:
    return Measured(value, value * (1 - ERROR), value * (1 + ERROR), 1)


def _speed(here: Making, remote: Making) -> float:
    """Of a data worker's core beside one of the training pod's, as far as both were seen."""
    if remote is here or remote.batches < LEAST_BATCHES or here.batches < LEAST_BATCHES:
        return 1.0
    own, other = here.cpu_seconds / here.batches, remote.cpu_seconds / remote.batches
    return min(10.0, max(0.1, own / other)) if own > 0 and other > 0 else 1.0


def _storage(source: Making) -> Storage | None:
    missed = source.storage_bytes / source.batches
    if missed < LEAST_MISSES:
        return None
    return Storage(bytes_per_sample=missed, hits=0.0)


def _causes(stalled: float, made: Making) -> dict[str, float]:
    """Of the time, by what the makers did with theirs."""
    parts = {
        FETCH: made.blocked_seconds,
        PREPARATION: made.cpu_seconds,
        TOO_FEW_CORES: made.queued_seconds,
    }
    total = sum(parts.values())
    if total <= 0:
        return {HAND_OVER: stalled} if stalled else {}
    return {cause: stalled * part / total for cause, part in parts.items() if part and stalled}
