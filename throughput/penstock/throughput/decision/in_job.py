"""The decision for one job: how many data workers, of what size, and what they promise.

Not offloading is a candidate like the others, and wins below a gain of 10 % (FastFlow, Algorithm
1). A job that waits for its storage is not helped by other processes that wait for it, too
(DS-Analyzer, PVLDB 14(5), section 3: fetch stalls and preparation stalls have different cures).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.throughput.decision.cut_comparison import CutComparison, compare_cuts
from penstock.throughput.decision.offload import LEAST_GAIN, Candidate, decide, unit
from penstock.throughput.limits.capacity import binding, bounds
from penstock.throughput.loop.prediction import Prediction, predict
from penstock.throughput.loop.stalls import FETCH
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import MOST_WORKERS

CORES: Final = 1
"""Of a data worker: it makes one batch at a time, and is small, so that it fits where other pods
leave room (GoldMiner, section 3.4.1)."""
STREAMS: Final = 10e6
"""Bytes a second of one reader. Who gets less while it is blocked waits for answers and not for
bytes: that is latency, which more readers hide."""
LEAST_STALL: Final = 0.05
"""A training that waits for less of its time is not held up by its input."""
UNEXPLAINED: Final = 0.05
"""Of a rate: what the model may be off by where a training waits."""
MOST_DEARER: Final = 4.0
"""So many times what was measured is not the cost of handing over any more."""


@dataclass(frozen=True, slots=True)
class JobDecision:
    """For a whole job; rates are samples a second of all its training processes.

    Attributes:
        data_workers: 0: none.
        cores: of each.
        promised: with them.
        without: without any.
        share: of the batches that they make.
        cut: what of a batch they make.
        binding: what bounds the rate then.
        waits_for_storage: the training waits for reads, which data workers would wait for, too.
        why: a sentence for people.
        runner_up: what was next best; empty: nothing.
        cuts: the kinds of cuts beside each other; None: they were not compared.
    """

    data_workers: int
    cores: int
    promised: Prediction
    without: float
    share: float
    cut: str
    binding: str
    waits_for_storage: bool
    why: str
    runner_up: str
    cuts: CutComparison | None = None

    @property
    def gain(self) -> float:
        """As a share of the rate without."""
        return self.promised.rate / self.without - 1 if self.without > 0 else 0.0


def decide_in_job(profile: Profile, most: int) -> JobDecision:
    """Choose.

    Args:
        profile: of one training process.
        most: data workers that the job may have.
    """
    alone = replace(profile.resources, data_workers=0)
    without = predict(profile, alone)
    if not profile.resources.data_workers:
        seen = profile.rate.value
        without = replace(without, rate=seen, low=min(without.low, seen))
    if waits_for_storage(profile):
        text = (
            "it waits for storage, not for CPU: "
            f"{profile.causes.get(FETCH, 0.0):.0%} of its time goes into reads that nothing has "
            "in memory; data workers would wait for them, too; a cache, or faster storage, helps"
        )
        return _none(profile, without, binding(bounds(profile, alone)), text, None, storage=True)
    if profile.stalled < LEAST_STALL and not profile.resources.data_workers:
        text = f"it waits for its input {profile.stalled:.0%} of its time: nothing to gain"
        return _none(profile, without, "accelerator", text, None)
    each = max(1, most // profile.processes) if most else 0
    each = min(each, MOST_WORKERS - alone.workers)  # more are not simulated
    profile = as_seen(profile)
    limits = replace(alone, data_workers=each, data_worker_cores=CORES)
    decision, cuts = decide(profile, limits), compare_cuts(profile, limits)
    chosen = decision.chosen
    if not decision.moves:
        runner_up = decision.runner_up
        return _none(profile, without, decision.binding, decision.why, runner_up, cuts=cuts)
    there = replace(alone, data_workers=chosen.data_workers, data_worker_cores=CORES)
    found = predict(profile, there, chosen.placement)
    if found.rate < (1 + LEAST_GAIN) * without.rate:
        gain = found.rate / without.rate - 1
        text = f"bound by {decision.binding}; data workers would bring {gain:.0%}: not worth it"
        return _none(profile, without, decision.binding, text, chosen, cuts=cuts)
    number = min(most, chosen.data_workers * profile.processes)
    return JobDecision(
        data_workers=number,
        cores=CORES,
        promised=_times(found, profile.processes),
        without=without.rate * profile.processes,
        share=chosen.placement.share,
        cut=chosen.placement.cut.name,
        binding=decision.binding,
        waits_for_storage=False,
        why=decision.why,
        runner_up=_in_words(decision.runner_up, profile),
        cuts=cuts,
    )


def as_seen(profile: Profile) -> Profile:
    """The profile with costs of making batches that explain why its training waits.

    What is measured of a batch is its making. To hand it over costs its maker something too, and on
    a core that both share the training loses it for a while. So where a job waits, and is slower
    than its costs have it, these are raised until the model is right where the job is now.
    """
    resources, seen = profile.resources, profile.rate.value
    explained = not resources.workers or resources.data_workers or profile.stalled < LEAST_STALL

    def dearer(factor: float) -> Profile:
        stages = [
            replace(
                stage,
                cpu_seconds=stage.cpu_seconds * factor,
                blocked_seconds=stage.blocked_seconds * factor,
            )
            for stage in profile.stages
        ]
        return replace(profile, stages=tuple(stages))

    def rate(factor: float) -> float:
        return min(bounds(dearer(factor), resources).values())

    if explained or rate(1.0) <= seen * (1 + UNEXPLAINED) or rate(MOST_DEARER) > seen:
        return profile
    low, high = 1.0, MOST_DEARER
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) > seen else (low, middle)
    return dearer(high)


def waits_for_storage(profile: Profile) -> bool:
    """Whether reads that are not in memory are most of what the training waits for."""
    storage = profile.storage
    if storage is None or storage.hits >= 1 or profile.stalled < LEAST_STALL:
        return False
    if storage.cold_bytes_per_second:
        return binding(bounds(profile, profile.resources)) == "storage"
    missed = storage.bytes_per_sample * (1 - storage.hits)
    streams = missed >= STREAMS * profile.blocked_seconds
    return streams and profile.blocked_seconds > profile.cpu_seconds


def _none(
    profile: Profile,
    without: Prediction,
    limit: str,
    why: str,
    runner_up: Candidate | None,
    *,
    storage: bool = False,
    cuts: CutComparison | None = None,
) -> JobDecision:
    times = profile.processes
    return JobDecision(
        data_workers=0,
        cores=CORES,
        promised=_times(without, times),
        without=without.rate * times,
        share=0.0,
        cut="all local",
        binding=limit,
        waits_for_storage=storage,
        why=why,
        runner_up=_in_words(runner_up, profile),
        cuts=cuts,
    )


def _times(found: Prediction, processes: int) -> Prediction:
    return replace(
        found,
        rate=found.rate * processes,
        low=found.low * processes,
        high=found.high * processes,
    )


def _in_words(candidate: Candidate | None, profile: Profile) -> str:
    if candidate is None:
        return ""
    number = candidate.data_workers * profile.processes
    rate = candidate.rate * profile.processes
    resources = replace(
        profile.resources, data_workers=candidate.data_workers, data_worker_cores=CORES
    )
    limit = binding(bounds(profile, resources, candidate.placement))
    name = f"{candidate.placement.cut.name}, {number} data workers"
    return f"{name}: {rate:.4g} {unit(profile)}, bound by {limit}"
