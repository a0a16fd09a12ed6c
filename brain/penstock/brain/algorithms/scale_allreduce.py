"""Add workers to an AllReduce job while each new one still pays, give back those that do not.

The rule is the scaling heuristic of Or et al. (Resource elasticity in distributed deep learning,
MLSys 2020), as DLRover (section 6.3) describes it: a worker pays while it adds more than a
threshold (0.3) of what one worker adds on average so far. Here

    efficiency(a -> b) = (R_b - R_a) / (b - a) / (R_a / a)

with R the measured speed at a and b workers. Five things are added:

- The global batch is kept, in M slots per step. With n workers the busiest holds ceil(M / n) of
  them, so only counts that lower that number can help; the others are never tried.
- Speeds are medians, their error comes from the spread of the samples, and a worker is given back
  only when the efficiency is below the threshold by more than that error (or after so many samples
  that more will not tell). One slow minute on a busy machine changes nothing.
- A count that did not pay is not tried again for `retry_seconds`, and neither is one below it that
  would not pay even if it made as much.
- A count that the job's budget does not bear is passed over for the next smaller one
  (`penstock.brain.model.budget`).
- Where the speed stops growing all at once, it is not the larger of two counts that is kept, but
  the least one between them that makes as much (`penstock.brain.model.knee`). Samples are waited
  for where it is close, since a worker too few is a part of the speed for hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.base.steps_left import steps_left
from penstock.brain.model import budget, knee, objective, plateau
from penstock.brain.model.budget import CHANGE_SECONDS
from penstock.brain.model.robust_statistics import robust_sigma
from penstock.brain.planning import (
    Algorithm,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    Plan,
    PlanReason,
    Prediction,
    RolePlan,
    Sample,
)
from penstock.brain.sizes import granted_milli_cpu

LEAST_BELOW: Final = 2
"""Numbers of workers that show it."""
MOST_LOOKS: Final = 4
"""Numbers tried for a plateau; then one that was measured is kept."""
LITTLE: Final = 1.08
"""How many times the likely number a surer one may be."""
SURE: Final = 0.85
"""How likely a number has to be enough for no surer one to be taken."""
ENOUGH: Final = 0.4
"""How likely the present number has to be enough to stay where one more is much: less than what a
new one is chosen by, so that noise does not move a job back and forth."""
MUCH: Final = 1.14
"""How many times the next smaller number makes that worth a trial though it is hardly likely."""
WORTH: Final = 0.15
"""How likely it has to be, then."""
CERTAIN: Final = 0.98
"""How certain it has to be that the present number is too small for no more samples to be taken."""


class ScaleAllReduceParams(Params):
    """When a count of workers is known well enough, and when one more pays."""

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """The least efficiency at which an added worker is kept."""
    fastest_threshold: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The same where the objective is Fastest, or a deadline that cannot be kept."""
    fastest_look_share: Annotated[float, Field(gt=0, le=1)] = 0.02
    """With Fastest, the part of the time that is left which it may cost to see whether fewer
    workers make as much: two changes."""
    growth: Annotated[float, Field(gt=1, le=4)] = 2.0
    """How many times the present workers are tried next, at most."""
    enough_steps: Annotated[int, Field(ge=1)] = 100
    """Steps at one count after which its speed is taken as measured."""
    enough_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time at one count after which its speed is taken as measured, however few the steps."""
    enough_samples: Annotated[int, Field(ge=2)] = 3
    """Samples that a count needs in any case."""
    most_samples: Annotated[int, Field(ge=3)] = 20
    """Samples after which a doubtful efficiency, or a plateau, is decided by its middle value."""
    least_noise: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Relative spread of samples that is taken for granted, however well they agree."""
    headroom: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Part of the speed at a plateau that fewer workers may miss."""
    saving: Annotated[float, Field(gt=1, le=4)] = 1.1
    """How many times the workers a plateau has to have before a count between is tried for it."""
    window_seconds: Annotated[float, Field(gt=0)] = 1800.0
    """Older samples do not count."""
    retry_seconds: Annotated[float, Field(gt=0)] = 1800.0
    """For how long a count that did not pay is left alone."""
    rest_seconds: Annotated[float, Field(gt=0)] = 6 * 3600.0
    """For how long no more workers are tried after some were given back, unless the speed of those
    that stayed changes."""
    drift: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Change of speed at one count after which more workers are tried all the same."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The speed at one count of workers, in global steps per second, and its standard error."""

    workers: int
    speed: float
    error: float
    samples: int
    settled: bool
    last_seconds: float


def plan(
    history: History, job: JobDescription, limits: Limits, params: ScaleAllReduceParams
) -> Plan | None:
    """A plan with another number of workers; None while the present one is right or unknown."""
    measured = measure(history, params)
    now = present(history, job, measured)
    aim = objective.aim(history, job)
    if now is None or aim.cheapest or aim.within_budget:
        return None
    if aim.needed is not None and now.speed >= aim.needed:
        return None  # `to_objective` sees whether fewer would do
    if aim.fastest or aim.needed is not None:
        params = params.model_copy(update={"threshold": params.fastest_threshold})
    stage = Stage.OPTIMIZE if history.plans[-1].stage is Stage.CREATE else Stage.ADJUST
    fewer = _fewer(now, measured, job)
    counts = useful_counts(job, most_workers(history, job, limits))
    found = _plateau(now, measured, counts, history, params)
    if found is not None and not (aim.fastest and _looks_too_late(history, job, now, params)):
        return None if found[0] == now.workers else _to_plateau(stage, now, *found)
    if fewer is not None:
        value, error = efficiency(fewer, now)
        if abs(value - params.threshold) <= 2 * error and now.samples < params.most_samples:
            return None  # too close to call: wait for more samples
        if value < params.threshold:
            return _give_back(stage, now, fewer, params)
    if _gave_back(history, now, params):
        return None
    return _grow(stage, now, measured, counts, fewer, history, job, params)


def present(
    history: History, job: JobDescription, measured: Mapping[int, Measured]
) -> Measured | None:
    """What the present workers make; None while that is unknown, or their number not the Brain's.

    It is unknown, too, while the last plan is still being carried out.
    """
    if job.role(Role.WORKER).fixed is not None or not history.plans or not history.samples:
        return None
    count = history.samples[-1].world_size
    target = next(
        (
            applied.roles[Role.WORKER].replicas
            for applied in reversed(history.plans)
            if Role.WORKER in applied.roles and applied.roles[Role.WORKER].replicas is not None
        ),
        None,
    )
    if target is not None and count != target:
        return None
    now = measured.get(count)
    return now if now is not None and now.settled else None


def useful_counts(job: JobDescription, most: int) -> tuple[int, ...]:
    """The numbers of workers worth trying, ascending: within the spec's bounds and `most`, and
    each the least that gives the busiest worker its number of slots.
    """
    spec = job.role(Role.WORKER)
    ceiling = min(spec.clamp(most), job.slots_per_step or most, max(most, spec.minimum))
    least = max(1, spec.minimum)
    counts: list[int] = []
    for count in range(least, max(ceiling, least) + 1):
        if spec.clamp(count) != count:  # not a whole number of units
            continue
        if counts and job.slots_per_step is not None:
            slots = math.ceil(job.slots_per_step / count)
            if slots == math.ceil(job.slots_per_step / counts[-1]):
                continue
        counts.append(count)
    return tuple(counts)


def measure(history: History, params: ScaleAllReduceParams) -> Mapping[int, Measured]:
    """The speed at every count of workers seen lately, by count.

    The first sample after a change of the count mixes two counts with a restart: it is left out.
    """
    oldest = history.now_seconds - params.window_seconds
    by_count: dict[int, list[Sample]] = {}
    before: int | None = None
    for sample in history.samples:
        same = sample.world_size == before
        before = sample.world_size
        if same and sample.world_size > 0 and sample.time_seconds >= oldest:
            by_count.setdefault(sample.world_size, []).append(sample)
    # The machine's noise is the same at every count; of few samples it would come out too small.
    ratios = [
        sample.steps_per_second / centre
        for samples in by_count.values()
        if (centre := median([other.steps_per_second for other in samples])) > 0
        for sample in samples
    ]
    noise = max(robust_sigma(ratios), params.least_noise)
    return {count: _speed(count, samples, noise, params) for count, samples in by_count.items()}


def _speed(
    count: int, samples: Sequence[Sample], noise: float, params: ScaleAllReduceParams
) -> Measured:
    speed = median([sample.steps_per_second for sample in samples])
    seconds = sum(sample.interval_seconds for sample in samples)
    steps = sum(sample.steps_per_second * sample.interval_seconds for sample in samples)
    enough = steps >= params.enough_steps or seconds >= params.enough_seconds
    return Measured(
        workers=count,
        speed=speed,
        # The standard error of a median is 1.25 times that of the mean.
        error=1.25 * noise * speed / math.sqrt(len(samples)),
        samples=len(samples),
        settled=enough and len(samples) >= params.enough_samples and speed > 0,
        last_seconds=samples[-1].time_seconds,
    )


def efficiency(fewer: Measured, more: Measured) -> tuple[float, float]:
    """Share of an average worker's speed that each worker beyond `fewer` adds, and its error."""
    per_worker = fewer.speed / fewer.workers
    added = more.workers - fewer.workers
    value = (more.speed - fewer.speed) / added / per_worker
    error = math.hypot(more.error, fewer.error * more.speed / fewer.speed) / added / per_worker
    return value, error


def most_workers(history: History, job: JobDescription, limits: Limits) -> int:
    """The most workers that bounds and quota allow."""
    spec = job.role(Role.WORKER)
    most = spec.maximum or job.slots_per_step or 64
    size = granted_milli_cpu(history, job, Role.WORKER)
    if limits.milli_cpu is not None and size is not None:
        most = min(most, limits.milli_cpu // size)
    return max(most, 1)


def _fewer(now: Measured, measured: Mapping[int, Measured], job: JobDescription) -> Measured | None:
    """The next smaller count whose speed is known and that the job allows."""
    least = max(1, job.role(Role.WORKER).minimum)
    known = [m for m in measured.values() if m.settled and least <= m.workers < now.workers]
    return max(known, key=lambda m: m.workers, default=None)


def _plateau(
    now: Measured,
    measured: Mapping[int, Measured],
    counts: Sequence[int],
    history: History,
    params: ScaleAllReduceParams,
) -> tuple[int, Measured] | None:
    """How many workers make as much as the most that were tried, and the latter.

    The present number where it is right, or known too badly to say; None where nothing is known to
    limit the speed but the number of workers.
    """
    recent = history.now_seconds - params.retry_seconds
    known = sorted(
        (m for m in measured.values() if m.settled and m.last_seconds >= recent),
        key=lambda m: m.workers,
    )
    looks = plateau.tries(history)
    if now not in known:
        return None
    if looks and (_rested(history, params) or _drifted(history, now, params)):
        return None
    top = known[-1]
    if sum(m.speed <= knee.BELOW * top.speed for m in known) < LEAST_BELOW:
        return (now.workers, top) if looks else None
    if not looks and efficiency(known[-2], top)[0] >= 1:
        return None
    judged = [c for c in counts if known[0].workers < c <= top.workers]
    chance = knee.chances(
        [m.workers for m in known],
        [m.speed for m in known],
        [m.error for m in known],
        [*judged, now.workers],
        params.headroom,
    )
    likely = [c for c in judged if chance[c] >= 0.5]
    if not likely:
        return None
    least = likely[0]
    more_than_needed = now.workers > params.saving * least
    if not looks and not more_than_needed:
        return None
    short = looks and chance[now.workers] < 1 - CERTAIN
    if now.samples < params.most_samples and not short:
        return now.workers, top
    cheap = now.workers + 1 <= LITTLE * now.workers
    enough = chance[now.workers] >= (SURE if cheap else ENOUGH)
    if looks and enough and not more_than_needed:
        fewer = max((c for c in judged if c < now.workers), default=now.workers)
        much = now.workers > MUCH * fewer and fewer not in measured and looks < MOST_LOOKS
        return (fewer if much and chance[fewer] >= WORTH else now.workers), top
    if looks >= MOST_LOOKS:
        likely = [c for c in likely if c in measured] or likely[-1:]
    # A worker more than is likely to be enough, where that is little and the next is surer.
    near = [c for c in likely if c <= max(LITTLE * least, likely[0])]
    return next((c for c in near if chance[c] >= SURE), near[-1]), top


def _rested(history: History, params: ScaleAllReduceParams) -> bool:
    """Whether the last plan is so old that what did not pay is tried again."""
    since = history.plans[-1].settled_seconds
    return since is not None and history.now_seconds - since > params.rest_seconds


def _drifted(history: History, now: Measured, params: ScaleAllReduceParams) -> bool:
    """Whether the speed of the present workers is not what it was after the last plan."""
    first, last = _first_and_last(history, now.workers, params)
    return last is not None and abs(last / max(first, 1e-9) - 1) > params.drift


def _looks_too_late(
    history: History, job: JobDescription, now: Measured, params: ScaleAllReduceParams
) -> bool:
    """Whether so little is left that a look at fewer workers and the way back cost too much of it.

    Speeds that grow less and less look like the start of a plateau, the more so where samples are
    noisy; where fewer workers do not make as much, the look has brought a job that is to be fast
    nothing.
    """
    left = steps_left(history.samples[-1].step, job.total_steps) / now.speed
    return params.fastest_look_share * left < 2 * CHANGE_SECONDS


def _gave_back(history: History, now: Measured, params: ScaleAllReduceParams) -> bool:
    """Whether the last change took workers back that brought too little, and nothing is new.

    Those that a budget took back brought too little for their cost.
    """
    last = history.plans[-1]
    for_good = (PlanReason.SCALING_INEFFICIENT, PlanReason.BUDGET)
    if last.reason not in (PlanReason.PLATEAU, *for_good):
        return False
    if last.settled_seconds is None or _rested(history, params):
        return False
    if _first_and_last(history, now.workers, params)[1] is None:
        return last.reason in for_good
    return not _drifted(history, now, params)


def _first_and_last(
    history: History, workers: int, params: ScaleAllReduceParams
) -> tuple[float, float | None]:
    """Medians of the first and the last speeds since the last plan; no last while they are few."""
    since = history.plans[-1].settled_seconds
    if since is None:
        return 0.0, None
    own = [s for s in history.samples if s.time_seconds > since and s.world_size == workers]
    speeds = [sample.steps_per_second for sample in own]
    part = max(params.enough_samples, 8)
    if len(speeds) < 2 * part:
        return 0.0, None
    return median(speeds[:part]), median(speeds[-part:])


def _to_plateau(stage: Stage, now: Measured, count: int, level: Measured) -> Plan:
    return _plan(
        stage=stage,
        workers=count,
        reason=PlanReason.PLATEAU,
        message=(
            f"{level.workers} workers make {level.speed:.3g} steps/s, less than fewer of them "
            f"promised: if something else limits the job, {count} make as much"
        ),
        now=now,
        figures={"workers_next": count, "plateau_steps_per_second": level.speed},
        prediction=Prediction(
            steps_per_second=level.speed,
            error_steps_per_second=_ninety(level.error, level.speed),
        ),
    )


def _give_back(stage: Stage, now: Measured, fewer: Measured, params: ScaleAllReduceParams) -> Plan:
    value, error = efficiency(fewer, now)
    return _plan(
        stage=stage,
        workers=fewer.workers,
        reason=PlanReason.SCALING_INEFFICIENT,
        message=(
            f"{now.workers} workers make {now.speed:.3g} steps/s where {fewer.workers} made "
            f"{fewer.speed:.3g}: each worker more adds {max(value, 0):.0%} of one worker's speed, "
            f"below {params.threshold:.0%}; give back {now.workers - fewer.workers}"
        ),
        now=now,
        figures={"efficiency": value, "efficiency_error": error, "fewer_speed": fewer.speed},
        prediction=Prediction(
            steps_per_second=fewer.speed,
            error_steps_per_second=_ninety(fewer.error, fewer.speed),
        ),
    )


def _grow(
    stage: Stage,
    now: Measured,
    measured: Mapping[int, Measured],
    counts: Sequence[int],
    fewer: Measured | None,
    history: History,
    job: JobDescription,
    params: ScaleAllReduceParams,
) -> Plan | None:
    reach = max(math.floor(now.workers * params.growth), now.workers + 1)
    recent = history.now_seconds - params.retry_seconds
    for count in sorted((c for c in counts if now.workers < c <= reach), reverse=True):
        other = measured.get(count)
        if other is not None and other.settled and other.last_seconds >= recent:
            value, doubt = efficiency(now, other)
            if value - 2 * doubt < params.threshold:
                continue
            speed, error = other.speed, _ninety(other.error, other.speed)
        elif _hopeless(now, count, measured, recent, params):
            continue
        else:
            speed, error = _expected(now, count, fewer)
        prediction = Prediction(steps_per_second=speed, error_steps_per_second=error)
        if not budget.fits({Role.WORKER: RolePlan(replicas=count)}, prediction, history, job):
            continue
        return _plan(
            stage=stage,
            workers=count,
            reason=PlanReason.SCALING_EFFICIENT,
            message=(
                f"{now.speed:.3g} steps/s on {now.workers} worker{'s' * (now.workers > 1)}; "
                f"{count} should make about {speed:.3g}"
            ),
            now=now,
            figures={"workers_next": count},
            prediction=prediction,
        )
    return None


def _hopeless(
    now: Measured,
    count: int,
    measured: Mapping[int, Measured],
    recent: float,
    params: ScaleAllReduceParams,
) -> bool:
    """Whether a count not tried yet would not pay: even as much as a larger one made would be too
    little at it, or one between did not pay, and workers pay ever less.
    """
    known = [m for m in measured.values() if m.settled and m.last_seconds >= recent]
    as_good = [replace(m, workers=count) for m in known if m.workers > count]
    between = [m for m in known if now.workers < m.workers < count]
    best = max(as_good, key=lambda m: m.speed, default=None)
    for other in (*between, *([best] if best else [])):
        value, doubt = efficiency(now, other)
        if value - 2 * doubt < params.threshold:
            return True
    return False


def _expected(now: Measured, count: int, fewer: Measured | None) -> tuple[float, float]:
    """Speed at a count not tried yet: the last efficiency carried on, else between none and all.

    Nothing is known of a first step up: its prediction is the middle of what is possible and its
    error reaches both ends.
    """
    if fewer is None:
        low, high = now.speed, now.speed * count / now.workers
        return (low + high) / 2, (high - low) / 2
    value, error = efficiency(fewer, now)
    share = min(max(value, 0.0), 1.0)
    added = now.speed / now.workers * (count - now.workers)
    return now.speed + share * added, added * max(0.25, 1.645 * error)


def _ninety(error: float, speed: float) -> float:
    """Nine in ten samples of a count measured before fall within this; never less than 5 %."""
    return max(1.645 * error, 0.05 * speed)


def _plan(
    *,
    stage: Stage,
    workers: int,
    reason: PlanReason,
    message: str,
    now: Measured,
    figures: Mapping[str, float],
    prediction: Prediction,
) -> Plan:
    return Plan(
        stage=stage,
        algorithm="scale_allreduce",
        roles={Role.WORKER: RolePlan(replicas=workers)},
        reason=reason,
        message=message,
        evidence=Evidence(
            samples=now.samples,
            last_sample_seconds=now.last_seconds,
            figures={
                "workers": now.workers,
                "steps_per_second": now.speed,
                "error_steps_per_second": now.error,
                **figures,
            },
        ),
        prediction=prediction,
    )


ALGORITHM: Final = Algorithm(
    name="scale_allreduce",
    version="1",
    summary="Adds AllReduce workers while each adds enough speed, gives back those that do not.",
    stages=frozenset({Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset({Trigger.SAMPLED, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset({Strategy.ALL_REDUCE}),
    params=ScaleAllReduceParams,
    plan=plan,
)
