"""Tuning of one job's data workers, as a state machine with no I/O (GoldMiner, section 3.4.1).

A job is profiled without data workers first; that is its *baseline*. Then three steps (Fig. 13):

1. DATA_WORKER_SIZE: one data worker grows core by core while throughput grows with it. It stops
   when the queue is ideal, when the gain falls under 0.9 of linear, or at the container's size. The
   last linear size is the *maximum* size; smaller workers may still be made of fragments.
2. DATA_WORKERS: more workers of that size, one per interval, until the queue is ideal or one brings
   less than 0.9 of what it should. That one is given back only if it brings less than half: between
   the two a job would lose most of a worker's gain for what may be an error of measurement. The
   cluster scheduler may refuse one (`granted=False`): the job then stays as it is and asks again.
   Where the training worker's own cores are busy then, it is they that the next batches wait for:
   MORE_TRAINING_CORES adds one at a time, if its node has it to spare, and takes back the first
   that brings less than half of what it should.
3. TRAINING_WORKER_SIZE: the training worker's CPU is cut core by core while throughput holds; the
   first cut that does not hold is taken back. What is cut is *surplus*: it stays with the job until
   somebody needs it.

Where a model of the job says how many data workers it needs (`Predicted`; FastFlow, PVLDB 16(5),
section 9, takes the number at once, too), they are asked for at once instead, PREDICTED, and one
interval later the promise is checked: kept within a tenth, the tuning goes on with step 3; missed,
or short by a thirtieth of the throughput, with step 2. What missed its promise by more than half is
given back, but for what the gain is worth. A further worker should then bring what the model
promised of each, and not its part of all throughput, of which the training pod's own workers make
some; and the last one is kept as well if it brings a thirtieth of the throughput, however little of
the promise that is: behind a link that binds, nobody brings more. A job that waits for storage, or
would gain too little, is left without data workers.

A tuned job of which the model says for three intervals that fewer would do as well, as when its
second epoch reads from memory, gives the others back, FEWER. One interval later its throughput must
hold, or it gets them again and keeps them.

If the job is not within 0.95 of its baseline after ten intervals with data workers, it falls back
to none for good. So does one that was tuned before, after ten such intervals in a row.

`step(tuning, measured, limits)` gives the next state and why; it never raises for a measurement
that is no number, it waits. Sizes are in cores, since that is the grain of tuning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

LINEAR_RATIO: Final = 0.9
"""A step is linear if it brings this part of what its cores should bring."""

KEEPING_RATIO: Final = 0.5
"""A data worker is kept if it brings this part of what it should; then it is the last one."""

IDEAL_RATIO: Final = 0.95
"""The queue is ideal if it is filled at this part of the speed at which it is emptied."""

BASELINE_RATIO: Final = 0.95
"""A job with data workers must reach this part of its baseline."""

FALLBACK_INTERVALS: Final = 10
"""Intervals with data workers after which the job must have reached its baseline."""

HOLDING_RATIO: Final = 0.98
"""Throughput holds, when the training worker is cut, at this part of what it was."""

PROMISED_RATIO: Final = 0.9
"""A promise is kept if this part of the promised gain is there."""

FEWER_INTERVALS: Final = 3
"""Intervals in a row for which a model must find fewer data workers to do."""

BUSY_RATIO: Final = 0.9
"""A training worker that uses this part of its cores is short of them."""

WORTH_RATIO: Final = 0.03
"""Of its throughput: for so much a job with a model keeps one data worker more. An accelerator
costs more than thirty cores, and less is not told from an error of measurement."""

LEAST_KEPT_GAIN: Final = 0.05
"""Of the baseline: where what was promised brings less, it is given back altogether."""


class Stage(StrEnum):
    """Where the tuning of a job is."""

    PROFILING = "Profiling"
    PREDICTED = "Predicted"
    DATA_WORKER_SIZE = "DataWorkerSize"
    DATA_WORKERS = "DataWorkers"
    TRAINING_WORKER_SIZE = "TrainingWorkerSize"
    MORE_TRAINING_CORES = "MoreTrainingCores"
    FEWER = "Fewer"
    TUNED = "Tuned"
    FALLEN_BACK = "FallenBack"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the tuning may use, in cores per worker and in workers."""

    training_cores: int = 8
    data_worker_cores: int = 8
    data_workers: int = 64
    least_data_workers: int = 0
    most_training_cores: int = 0
    """To which a training worker may grow; where it has as many, it does not."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One interval, in steps per second; `granted` says whether what was asked for was given."""

    throughput: float
    enqueue: float
    dequeue: float
    granted: bool = True
    training_busy: float = 0.0
    """The part of its cores that the busiest training worker uses; 0: not known."""

    @property
    def is_sound(self) -> bool:
        """Whether all rates are finite and not negative."""
        rates = (self.throughput, self.enqueue, self.dequeue)
        return all(math.isfinite(rate) and rate >= 0 for rate in rates)

    @property
    def is_ideal(self) -> bool:
        """Whether the training gets all the data that it can take."""
        return self.enqueue >= IDEAL_RATIO * self.dequeue


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a model of the job says that data workers would do.

    Attributes:
        data_workers: that it should get; 0: they would not help enough.
        cores: of each.
        throughput: promised with them, as a multiple of the job's without any.
        waits_for_storage: data workers would wait for the same storage.
        why: for people.
    """

    data_workers: int = 0
    cores: int = 1
    throughput: float = 1.0
    waits_for_storage: bool = False
    why: str = ""

    def gain_per_core(self, without: float) -> float:
        """Of throughput, for one whose throughput without data workers is ``without``."""
        cores = self.data_workers * self.cores
        return without * max(0.0, self.throughput - 1) / cores if cores else 0.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """A job's configuration now, and what the tuning remembers."""

    stage: Stage
    training_cores: int
    data_worker_cores: int = 0
    data_workers: int = 0
    max_data_worker_cores: int = 0
    baseline: float = 0.0
    before: float = 0.0
    """Throughput before the last change."""
    promised: float = 0.0
    """Throughput that was promised for the data workers that it has; 0: nothing was."""
    promised_each: float = 0.0
    """Throughput that each data worker was promised to bring; 0: nothing was."""
    intervals: int = 0
    """Intervals with data workers."""
    behind_intervals: int = 0
    """Of a tuned job: intervals in a row in which it waited for data, behind its baseline."""
    roomy_intervals: int = 0
    """Of a tuned job: intervals in a row in which a model found fewer data workers to do."""
    needed: int = 0
    """So many data workers it keeps: fewer were tried, or somebody has asked for them."""
    surplus_cores: int = 0
    """Cores of the training worker that it does not need, lent until somebody asks."""
    why: str = "profile without data workers"

    @property
    def data_cores(self) -> int:
        """Cores of all data workers together."""
        return self.data_worker_cores * self.data_workers

    @property
    def is_final(self) -> bool:
        """Whether the tuning is over."""
        return self.stage in (Stage.TUNED, Stage.FALLEN_BACK)


def begin(limits: Limits) -> Tuning:
    """A new job: as it was submitted, to be profiled."""
    return Tuning(Stage.PROFILING, limits.training_cores)


def step(
    tuning: Tuning, measured: Measured, limits: Limits, predicted: Predicted | None = None
) -> Tuning:
    """The configuration for the next interval, given how this one went.

    ``predicted``: what a model says of the job; None: there is none, and the steps are tried.
    """
    if tuning.stage is Stage.FALLEN_BACK:
        return tuning
    if tuning.stage is Stage.TUNED:
        return _watch_over(tuning, measured, limits, predicted)
    if not measured.is_sound:
        return replace(tuning, why="wait: the job reports rates that are no numbers")
    if tuning.stage is Stage.PROFILING:
        if predicted is not None:
            return _as_predicted(tuning, measured, limits, predicted)
        return _first_data_worker(tuning, measured)
    tuning = replace(tuning, intervals=tuning.intervals + 1)
    behind = measured.throughput < BASELINE_RATIO * tuning.baseline
    if behind and tuning.intervals >= FALLBACK_INTERVALS:
        return _fall_back(tuning, measured, limits)
    if tuning.stage is Stage.FEWER:
        return _check_fewer(tuning, measured, limits)
    if tuning.stage is Stage.PREDICTED:
        return _verify(tuning, measured, limits)
    late = tuning.stage is Stage.DATA_WORKER_SIZE and tuning.intervals == 1
    if late and predicted is not None and predicted.data_workers > 1:
        alone = replace(measured, throughput=tuning.baseline)
        return _as_predicted(tuning, alone, limits, predicted)
    if tuning.stage is Stage.DATA_WORKER_SIZE:
        return _tune_size(tuning, measured, limits)
    if tuning.stage is Stage.DATA_WORKERS:
        return _tune_number(tuning, measured, limits)
    if tuning.stage is Stage.MORE_TRAINING_CORES:
        return _check_more_training_cores(tuning, measured, limits)
    return _tune_training_worker(tuning, measured, limits)


def _watch_over(
    tuning: Tuning, measured: Measured, limits: Limits, predicted: Predicted | None
) -> Tuning:
    """A tuned job keeps what it has, unless it is slower than without any for too long.

    One that does not wait for data is slow for other reasons, such as fewer training workers; and
    it may have more data workers than it needs by now.
    """
    behind = measured.is_sound and measured.throughput < BASELINE_RATIO * tuning.baseline
    if not behind or measured.is_ideal or not tuning.data_workers:
        settled = replace(tuning, behind_intervals=0) if tuning.behind_intervals else tuning
        return _look_for_fewer(settled, measured, limits, predicted)
    count = tuning.behind_intervals + 1
    if count >= FALLBACK_INTERVALS:
        return _fall_back(tuning, measured, limits)
    return replace(tuning, behind_intervals=count, roomy_intervals=0)


def _look_for_fewer(
    tuning: Tuning, measured: Measured, limits: Limits, predicted: Predicted | None
) -> Tuning:
    """Give back what a model has found for some time not to be needed, if it was not before."""
    number = tuning.data_workers
    fewer = number
    if predicted is not None and number and measured.is_sound and measured.throughput > 0:
        cores = predicted.data_workers * predicted.cores
        fewer = max(limits.least_data_workers, math.ceil(cores / tuning.data_worker_cores))
    if fewer >= number or number <= tuning.needed:
        return replace(tuning, roomy_intervals=0) if tuning.roomy_intervals else tuning
    count = tuning.roomy_intervals + 1
    if count < FEWER_INTERVALS or predicted is None:
        return replace(tuning, roomy_intervals=count)
    return replace(
        tuning,
        stage=Stage.FEWER,
        data_workers=fewer,
        needed=number,
        before=measured.throughput,
        roomy_intervals=0,
        why=f"{fewer} data workers of {number} do: {predicted.why}",
    )


def _check_fewer(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    """Whether throughput held with fewer data workers."""
    fewer, had = tuning.data_workers, tuning.needed
    part = measured.throughput / tuning.before
    if part < HOLDING_RATIO:
        why = f"{part:.0%} of the throughput with {fewer} data workers: {had} again, and kept"
        return replace(tuning, stage=Stage.TUNED, data_workers=had, why=why)
    why = f"throughput holds with {fewer} data workers of {had}"
    if not fewer:  # as a new job, so that it may have some when it waits again
        return replace(begin(limits), why=why)
    return replace(tuning, stage=Stage.TUNED, needed=0, why=why)


def _first_data_worker(tuning: Tuning, measured: Measured) -> Tuning:
    why = f"baseline is {measured.throughput:.3g} steps/s; start one data worker with 1 core"
    return replace(
        tuning,
        stage=Stage.DATA_WORKER_SIZE,
        baseline=measured.throughput,
        before=0.0,
        data_workers=1,
        data_worker_cores=1,
        max_data_worker_cores=1,
        why=why,
    )


def _as_predicted(
    tuning: Tuning, measured: Measured, limits: Limits, predicted: Predicted
) -> Tuning:
    number = min(predicted.data_workers, limits.data_workers)
    if predicted.waits_for_storage or number < 1:
        return replace(tuning, why=predicted.why or "a model of the job expects no gain")
    cores = max(1, min(predicted.cores, limits.data_worker_cores))
    part = number * cores / (predicted.data_workers * predicted.cores)
    gain = min(1.0, part) * (predicted.throughput - 1)
    return replace(
        tuning,
        stage=Stage.PREDICTED,
        baseline=measured.throughput,
        before=0.0,
        promised=measured.throughput * (1 + gain),
        promised_each=measured.throughput * gain / number,
        data_workers=number,
        data_worker_cores=cores,
        max_data_worker_cores=cores,
        why=f"{number} data workers of {cores} cores at once promise {1 + gain:.2f} of "
        f"{measured.throughput:.3g} steps/s: {predicted.why}",
    )


def _verify(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    """Whether the promise was kept, and what follows where it was not."""
    number = tuning.data_workers
    if not measured.granted:
        return replace(tuning, why="wait: not all data workers that were asked for are there")
    gained = measured.throughput - tuning.baseline
    promised = max(tuning.promised - tuning.baseline, 1e-12)
    said = f"{number} data workers brought {gained / promised:.0%} of the promised gain"
    missing = (1 + WORTH_RATIO) * measured.throughput <= tuning.promised
    if missing and gained >= KEEPING_RATIO * promised and number < limits.data_workers:
        return replace(
            tuning,
            stage=Stage.DATA_WORKERS,
            data_workers=number + 1,
            before=measured.throughput,
            why=f"{said}: one more may bring {tuning.promised / measured.throughput - 1:.0%}",
        )
    if measured.is_ideal:
        why = f"{said} and fill the queue; try fewer training cores"
        return _cut_training_worker(replace(tuning, before=measured.throughput), why)
    if gained >= PROMISED_RATIO * promised:
        return replace(tuning, stage=Stage.TUNED, why=f"{said}: kept")
    if gained >= KEEPING_RATIO * promised:
        climbing = replace(tuning, stage=Stage.DATA_WORKERS, before=0.0)
        return _tune_number(climbing, measured, limits)
    if gained < LEAST_KEPT_GAIN * tuning.baseline:
        return _give_up(tuning, limits, f"{said}, less than {LEAST_KEPT_GAIN:.0%} of the baseline")
    kept = max(1, math.ceil(number * gained / promised))
    return replace(
        tuning,
        stage=Stage.DATA_WORKERS,
        data_workers=kept,
        before=0.0,
        why=f"{said}, less than half: {kept} are kept",
    )


def _fall_back(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    part = measured.throughput / tuning.baseline
    why = f"only {part:.0%} of the baseline after {tuning.intervals} intervals"
    return _give_up(tuning, limits, why)


def _give_up(tuning: Tuning, limits: Limits, why: str) -> Tuning:
    """As it was submitted, for good."""
    return replace(
        tuning,
        stage=Stage.FALLEN_BACK,
        data_workers=0,
        data_worker_cores=0,
        training_cores=limits.training_cores,
        surplus_cores=0,
        why=f"{why}: no data workers",
    )


def _tune_size(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    cores = tuning.data_worker_cores
    if not measured.granted:
        return replace(tuning, why="wait: the core that was asked for was not free")
    if cores > 1 and not _is_linear(tuning.before, measured.throughput, cores - 1, cores):
        linear = cores - 1
        return replace(
            tuning,
            stage=Stage.DATA_WORKERS,
            data_worker_cores=linear,
            max_data_worker_cores=linear,
            before=0.0,
            why=f"core {cores} brought less than {LINEAR_RATIO} of linear: workers of {linear}",
        )
    if measured.is_ideal:
        why = f"one data worker of {cores} cores fills the queue; try fewer training cores"
        return _cut_training_worker(
            replace(tuning, max_data_worker_cores=cores, before=measured.throughput), why
        )
    if cores >= limits.data_worker_cores:
        full = replace(tuning, stage=Stage.DATA_WORKERS, max_data_worker_cores=cores, before=0.0)
        return _tune_number(full, measured, limits)
    return replace(
        tuning,
        data_worker_cores=cores + 1,
        max_data_worker_cores=cores,
        before=measured.throughput,
        why=f"linear up to {cores} cores: one core more",
    )


def _tune_number(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    workers = tuning.data_workers
    if not measured.granted:
        return replace(tuning, why="wait: the data worker that was asked for found no place")
    if measured.is_ideal:
        why = f"{workers} data workers fill the queue; try fewer training cores"
        if tuning.promised_each > 0 and tuning.before and not _worth(tuning, measured):
            why = f"worker {workers} brought next to nothing: keep {workers - 1}"
            tuning = replace(tuning, data_workers=workers - 1)
        return _cut_training_worker(replace(tuning, before=measured.throughput), why)
    if workers > 1 and tuning.before:
        gained, what = _brought(tuning, measured)
        if gained < LINEAR_RATIO:
            kept = workers if gained >= KEEPING_RATIO or _worth(tuning, measured) else workers - 1
            tuned = replace(
                tuning,
                stage=Stage.TUNED,
                data_workers=kept,
                before=measured.throughput if kept == workers else tuning.before,
                why=f"worker {workers} brought {gained:.2f} of {what}, less than {LINEAR_RATIO}: "
                f"keep {kept}",
            )
            return _more_training_cores(tuned, measured, limits)
    if workers >= limits.data_workers:
        return replace(
            tuning, stage=Stage.TUNED, why=f"all {workers} data workers allowed are used"
        )
    return replace(
        tuning,
        data_workers=workers + 1,
        before=measured.throughput,
        why=f"{workers} of {tuning.data_worker_cores} cores do not fill the queue: one more",
    )


def _brought(tuning: Tuning, measured: Measured) -> tuple[float, str]:
    """What the last data worker brought, as a part of what it should bring, and of what that is."""
    if tuning.promised_each > 0:
        gained = measured.throughput - tuning.before
        return gained / tuning.promised_each, f"the {tuning.promised_each:.3g} steps/s promised"
    workers = tuning.data_workers
    return _gain(tuning.before, measured.throughput, workers - 1, workers), "linear"


def _worth(tuning: Tuning, measured: Measured) -> bool:
    """Whether a job with a model keeps its last data worker for what it brought."""
    least = (1 + WORTH_RATIO) * tuning.before
    return tuning.promised_each > 0 and measured.throughput >= least


def _cut_training_worker(tuning: Tuning, why: str) -> Tuning:
    if tuning.training_cores <= 1:
        return replace(tuning, stage=Stage.TUNED, why="the training worker has one core left")
    return replace(
        tuning,
        stage=Stage.TRAINING_WORKER_SIZE,
        training_cores=tuning.training_cores - 1,
        surplus_cores=tuning.surplus_cores + 1,
        why=why,
    )


def _more_training_cores(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    """A core more for the training worker, where it is busy and may have it; else as it is."""
    cores = tuning.training_cores
    if measured.training_busy < BUSY_RATIO or cores >= limits.most_training_cores:
        return tuning
    return replace(
        tuning,
        stage=Stage.MORE_TRAINING_CORES,
        training_cores=cores + 1,
        why=f"{tuning.why}; the training worker is busy with {cores} cores: one more",
    )


def _check_more_training_cores(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    """Whether the core that the training worker got brought enough to keep it."""
    cores = tuning.training_cores
    gained = _gain(tuning.before, measured.throughput, cores - 1, cores) if tuning.before else 1.0
    why = f"training core {cores} brought {gained:.2f} of linear"
    if gained < KEEPING_RATIO:
        why = f"{why}, less than {KEEPING_RATIO}: back to {cores - 1}"
        return replace(tuning, stage=Stage.TUNED, training_cores=cores - 1, why=why)
    kept = replace(tuning, stage=Stage.TUNED, before=measured.throughput, why=f"{why}: kept")
    return kept if measured.is_ideal else _more_training_cores(kept, measured, limits)


def _tune_training_worker(tuning: Tuning, measured: Measured, limits: Limits) -> Tuning:
    cores = tuning.training_cores
    if measured.throughput >= HOLDING_RATIO * tuning.before:
        held = replace(tuning, before=max(tuning.before, measured.throughput))
        return _cut_training_worker(held, f"throughput holds with {cores} cores: one less")
    return replace(
        tuning,
        stage=Stage.TUNED,
        training_cores=cores + 1,
        surplus_cores=max(0, tuning.surplus_cores - 1),
        why=f"throughput fell with {cores} cores: back to {cores + 1}, tuned",
    )


def _is_linear(before: float, after: float, cores_before: int, cores_after: int) -> bool:
    """Whether a step brought at least `LINEAR_RATIO` of the gain that its cores should."""
    if not before or not cores_before:
        return True
    return _gain(before, after, cores_before, cores_after) >= LINEAR_RATIO


def _gain(before: float, after: float, cores_before: int, cores_after: int) -> float:
    """What a step brought, as a part of what its cores should bring."""
    return (after - before) / (before * (cores_after - cores_before) / cores_before)
