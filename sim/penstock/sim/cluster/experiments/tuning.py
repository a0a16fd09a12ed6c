"""`penstock sim tuning`: the three steps of GoldMiner's Fig. 13 on a modelled ResNet18 job.

The job is a model, the tuning is the scheduler's own (`penstock.scheduler.tuning`). The model says
that data cores pre-process equally fast wherever they are, that a training worker needs three cores
to take in what three data workers of eight make, and that without data workers the same cores do
both. So the expected end is what the paper reports: three data workers of 8 cores, training worker
of 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.scheduler.tuning import Limits, Measured, Stage, Tuning, begin, step

IDEAL_DATA_CORES: Final = 24
"""Data cores that keep the modelled GPU busy."""

NEEDED_TRAINING_CORES: Final = 3
STEPS_PER_SECOND: Final = 10.0
"""Speed of the modelled job when nothing holds it up."""

_MOST_INTERVALS: Final = 100


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One interval: what the job ran with, how fast, and what was decided then."""

    interval: int
    stage: Stage
    data_workers: int
    data_worker_cores: int
    training_cores: int
    steps_per_second: float
    decision: str

    def as_json(self) -> dict[str, object]:
        """The line under the names that other programs read."""
        return {
            "interval": self.interval,
            "stage": str(self.stage),
            "data_workers": self.data_workers,
            "data_worker_cores": self.data_worker_cores,
            "training_cores": self.training_cores,
            "steps_per_second": round(self.steps_per_second, 3),
            "decision": self.decision,
        }


def measure(tuning: Tuning) -> Measured:
    """What the modelled job does with a configuration."""
    if not tuning.data_workers:
        cores = tuning.training_cores / (IDEAL_DATA_CORES + NEEDED_TRAINING_CORES)
        speed = STEPS_PER_SECOND * min(1.0, cores)
        return Measured(throughput=speed, enqueue=speed, dequeue=STEPS_PER_SECOND)
    enqueue = STEPS_PER_SECOND * tuning.data_cores / IDEAL_DATA_CORES
    dequeue = STEPS_PER_SECOND * min(1.0, tuning.training_cores / NEEDED_TRAINING_CORES)
    return Measured(throughput=min(enqueue, dequeue), enqueue=enqueue, dequeue=dequeue)


def trace(limits: Limits | None = None) -> Iterator[TraceLine]:
    """The tuning, interval by interval, until it is over."""
    limits = limits or Limits()
    tuning = begin(limits)
    for interval in range(_MOST_INTERVALS):
        measured = measure(tuning)
        following = step(tuning, measured, limits)
        yield TraceLine(
            interval=interval,
            stage=tuning.stage,
            data_workers=tuning.data_workers,
            data_worker_cores=tuning.data_worker_cores,
            training_cores=tuning.training_cores,
            steps_per_second=measured.throughput,
            decision=following.why,
        )
        if tuning.is_final:
            return
        tuning = following
