"""What a job's newest report says about its data queue, in the terms of the tuning (pure).

The queue is bounded, so what comes in soon equals what goes out, and only the rate at which the
training *could* take batches shows whether it waits: that is the ideal rate, where the consumer
reports it, and else what the waiting of the training workers makes of the rate they had.

What the training took was there to be taken, wherever it was made: a job that makes all its batches
itself receives none, and waits for data only as much as it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.base.steps_left import steps_left
from penstock.scheduler.stage_tuning import MeasuredStage
from penstock.scheduler.tuning import Predicted

MOST_WAIT: Final = 0.95
"""A share of waiting above this is taken for this: how much faster a job would be is not known."""


@dataclass(frozen=True, slots=True)
class QueueSignals:
    """One interval of one job, measured at the consumer; steps or batches per second.

    `step` is the newest step, and `total_steps` how many there will be, where that is known.
    """

    time_seconds: float
    step: int
    throughput: float
    enqueue: float
    dequeue: float
    bytes_per_second: float = 0.0
    predicted: Predicted | None = None
    """What a model of the job says; None: there is none."""
    stages: tuple[MeasuredStage, ...] = ()
    """The stages in which the input is made; fewer than two: one."""
    training_cores_used: float = 0.0
    """By the busiest training worker; 0: not known."""
    total_steps: int | None = None

    @property
    def ideal_throughput(self) -> float:
        """Steps per second if the training never waited for data."""
        if not self.enqueue > 0:
            return max(self.throughput, self.dequeue)
        return self.throughput * max(1.0, self.dequeue / self.enqueue)

    @property
    def remaining_steps(self) -> float:
        """Steps that it has yet to make."""
        return float(steps_left(self.step, self.total_steps))


def signals(
    *,
    time_seconds: float,
    step: int,
    steps_per_second: float,
    enqueued: float | None,
    dequeued: float | None,
    ideal: float | None,
    wait_share: float | None,
    received_bytes: float | None = None,
    predicted: Predicted | None = None,
    stages: Sequence[MeasuredStage] = (),
    training_cores_used: float = 0.0,
    total_steps: int | None = None,
) -> QueueSignals | None:
    """The signals of one sample; None where the job has no queue that data workers could fill.

    A program that reports no steps takes one batch in each. While it takes none, as before its
    first one, nothing can be said of how many it would take. Rates that are no numbers are kept:
    whoever decides leaves such a job as it is, and says so.
    """
    if enqueued is None or not dequeued:
        return None
    if math.isfinite(enqueued) and enqueued >= 0 and math.isfinite(dequeued):
        enqueued = max(enqueued, dequeued)
    throughput = steps_per_second or dequeued
    wanted = dequeued
    if ideal is not None:
        wanted = ideal
    elif wait_share is not None and math.isfinite(wait_share):
        wanted = dequeued / (1.0 - min(max(wait_share, 0.0), MOST_WAIT))
    return QueueSignals(
        time_seconds,
        step,
        throughput,
        enqueued,
        wanted,
        received_bytes or 0.0,
        predicted,
        tuple(stages) if len(stages) > 1 else (),
        training_cores_used,
        total_steps,
    )
