"""The fastest configuration of a job with parameter servers, by a model fitted to its samples.

The model is DLRover's (section 4.1), with each server's share of the work kept apart, fitted to all
configurations the job has been in (`penstock.brain.model.ps_model`). From it the whole numbers that
give the most steps per second within the quota are searched (`penstock.brain.model.ps_search`), net
of what the change costs. The paper scales servers, measures, and scales workers; here both change
at once as soon as one worker has been measured, because the samples already tell the work of each
server.

Servers are dear and workers cheap to change (the paper's principles 2 and 3):

- the servers change only for a gain that is worth a stop of the training, never sooner than
  `server_interval_seconds` after the last time, and at most `most_server_changes` times;
- otherwise the workers change, for any gain above `worker_gain`.

A job whose speed stays below what the model promises, though its servers are not full, is limited
by something that the model does not know (`penstock.brain.model.plateau`). It gets the fewest cores
that keep the speed, and what brought nothing is taken back.

Where the fullest server is as large as a pod may be and still limits the job, another number of
servers is tried: parameters are placed by whole tensors, so how they spread is only known then, or
once the numbers measured tell what each tensor takes (`penstock.brain.model.ps_tensors`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.model import budget, objective, plateau
from penstock.brain.model.measurement import Measurement, all_train, measurements, settled
from penstock.brain.model.plateau import Plateau
from penstock.brain.model.ps_model import Fit, fit
from penstock.brain.model.ps_search import (
    Bounds,
    Choice,
    allocate,
    best,
    best_workers,
    fewest,
    least,
    worker_sizes,
)
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
    RankPlan,
    RolePlan,
)
from penstock.brain.sizes import (
    CORE,
    in_force,
    next_stage,
    pod_memory_bytes,
    seconds_with_servers,
    server_changes,
    server_memory_bytes,
    servers_rested,
)

PLATEAU_JUDGING_SECONDS: Final = 600.0
"""For so long it is seen whether what is left for a plateau is enough."""
PLATEAU_DRIFT_SAMPLES: Final = 12
"""Of the first and the last, which are compared: more than usual, as less is at stake."""


NEAR: Final = 0.85
"""What makes so much of a plateau's speed, and not all, tells well what all of it needs."""
MOST_PLATEAU_TRIES: Final = 4
"""After so many, what is known to make the speed is what stays."""


class FittedPsParams(Params):
    """When samples are enough, and what a change must be worth."""

    enough_samples: Annotated[int, Field(ge=2)] = 3
    """Samples of the present configuration that a plan needs."""
    most_samples: Annotated[int, Field(ge=3)] = 10
    """Samples after which a configuration is left as it is, unless its speed changes; never before
    it has been in force for `judging_seconds`, however often samples come."""
    drift: Annotated[float, Field(gt=0, lt=1)] = 0.08
    """Change of speed, in one configuration, after which it is planned anew."""
    judging_seconds: Annotated[float, Field(gt=0)] = 120.0
    """For so long, at least, a configuration is judged: twice the usual time from one look at a job
    to the next. After a change of servers it is judged anew from when they may change again, until
    so long after twice `server_interval_seconds`, since after such a change looks are that rare."""
    worker_gain: Annotated[float, Field(gt=0, lt=1)] = 0.015
    """Least predicted gain for which workers change."""
    server_gain: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Least predicted gain for which servers change."""
    trial_gain: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Least predicted gain for which a number of servers is tried that was never measured."""
    told_gain: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Least predicted gain for which a number of servers is chosen whose spread was inferred."""
    server_interval_seconds: Annotated[float, Field(ge=0)] = 300.0
    """Least time from one change of servers to the next, unless waiting loses more."""
    change_seconds: Annotated[float, Field(ge=0)] = budget.CHANGE_SECONDS
    """Of training that a change of servers is taken to cost. Where what is lost by waiting for the
    end of `server_interval_seconds` is more, as after a trial that made the job slower, they change
    at once."""
    most_server_changes: Annotated[int, Field(ge=1)] = 3
    """Changes of servers over the life of a job."""
    most_servers: Annotated[int, Field(ge=1, le=256)] = 32
    """The most servers that are tried."""
    most_workers: Annotated[int, Field(ge=1, le=4096)] = 100
    """The most workers where the job does not say: more make gradients too stale."""
    plateau_samples: Annotated[int, Field(ge=2)] = 8
    """Samples of a configuration before it counts as being at a plateau, or below it."""
    plateau_headroom: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Speed above a plateau that the configuration for it is predicted to be able to make."""
    plateau_saving: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Least part of the cores for which a job at a plateau is made smaller."""
    plateau_seconds: Annotated[float, Field(gt=0)] = 6 * 3600.0
    """How long a plateau is believed before more is tried again."""
    memory_margin: Annotated[float, Field(ge=0, le=4)] = 0.2
    """Share added to the memory seen in use."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the steps of one call share."""

    job: JobDescription
    limits: Limits
    params: FittedPsParams
    now: Measurement
    runs: Sequence[Measurement]
    fitted: Fit
    bounds: Bounds
    changes: int


def plan(
    history: History, job: JobDescription, limits: Limits, params: FittedPsParams
) -> Plan | None:
    """A plan with other workers, or other workers and servers; None while nothing is to be won."""
    aim = objective.aim(history, job)
    now = settled(history, job, params.enough_samples)
    cheap = aim.cheapest or aim.within_budget  # `to_objective` plans it
    if now is None or limits.milli_cpu is None or cheap:
        return None
    if _rests_at_plateau(history, params):
        return None
    runs = measurements(history, job)
    flat = plateau.find(runs, params.plateau_samples)
    early = flat is None and now.samples < params.plateau_samples
    if early and plateau.find(runs, params.enough_samples) is not None:
        return None  # it looks like one: wait for samples that tell
    if flat is None and _at_rest(history, now, params):
        return None
    situation = situation_of(history, job, limits, params, now, runs)
    if aim.needed is not None and (
        now.steps_per_second >= aim.needed or for_speed(history, situation, aim.needed) is not None
    ):
        return None  # `to_objective` plans it
    if flat is not None:
        return _for_plateau(history, situation, flat)
    present = situation.fitted.predict(now.workers, now.worker_cores, now.server_cores)[0]
    kept = best_workers(
        situation.fitted,
        situation.bounds,
        now.server_cores,
        worker_sizes(situation.fitted, situation.bounds),
    )
    floor = max(present, kept.steps_per_second if kept else 0.0)
    if situation.changes < params.most_server_changes:
        found = _servers(situation)
        gain = found.steps_per_second / floor - 1 if found is not None and floor > 0 else 0.0
        if found is not None and gain > params.server_gain and may_change(history, params, gain):
            return made_plan(history, situation, found, keep_servers=False)
    if kept is not None and kept.steps_per_second > present * (1 + params.worker_gain):
        return made_plan(history, situation, kept, keep_servers=True)
    return None


def situation_of(
    history: History,
    job: JobDescription,
    limits: Limits,
    params: FittedPsParams,
    now: Measurement,
    runs: Sequence[Measurement],
) -> Situation:
    """What is known of a job whose CPU is limited, with the model fitted to its runs."""
    worker = job.role(Role.WORKER)
    most = worker.maximum or params.most_workers
    return Situation(
        job=job,
        limits=limits,
        params=params,
        now=now,
        runs=runs,
        fitted=fit(runs),
        bounds=Bounds(
            cores=(limits.milli_cpu or 0) // CORE,
            pod_cores=max(limits.pod_milli_cpu // CORE, 1),
            least_workers=worker.fixed or max(worker.minimum, 1),
            most_workers=worker.fixed or most,
        ),
        changes=server_changes(history),
    )


def servers_to_choose(history: History, of: Situation) -> list[int | tuple[float, ...]]:
    """The present servers and, where they may change, the numbers whose spread is known."""
    options: list[int | tuple[float, ...]] = [tuple(of.now.server_cores)]
    if of.changes < of.params.most_server_changes and may_change(history, of.params, 0.0):
        spec = of.job.role(Role.PS)
        options += [count for count in of.fitted.work if spec.clamp(count) == count]
    return options


def for_speed(history: History, of: Situation, steps_per_second: float) -> Choice | None:
    """The fewest cores that are predicted to reach a speed, with some to spare."""
    wanted = steps_per_second * (1 + objective.HEADROOM)
    return fewest(of.fitted, of.bounds, servers_to_choose(history, of), wanted)


def may_change(history: History, params: FittedPsParams, gain: float) -> bool:
    """Whether servers may change for a gain, as a share of the speed that there is."""
    since = seconds_with_servers(history)
    wait = params.server_interval_seconds - since
    return wait <= 0 or (since >= 0 and gain * wait >= params.change_seconds)


def _at_rest(history: History, now: Measurement, params: FittedPsParams) -> bool:
    """Whether this configuration has been judged often enough, and once with servers free to
    change, and its speed is what it was.
    """
    if now.samples <= params.most_samples or _settled_for(history) < params.judging_seconds:
        return False
    if _drifted(history, params):
        return False
    if plateau.rests(history) and _settled_for(history) >= params.plateau_seconds:
        return False  # what limited it may be gone
    interval = params.server_interval_seconds
    just_free = servers_rested(history, interval) and not servers_rested(
        history, 2 * interval + params.judging_seconds
    )
    return not just_free


def _rests_at_plateau(history: History, params: FittedPsParams) -> bool:
    """Whether a plan for a plateau has been judged, and the speed is what it was."""
    judged = PLATEAU_JUDGING_SECONDS <= _settled_for(history) < params.plateau_seconds
    if not plateau.rests(history) or not judged:
        return False
    return not _drifted(history, params, least=PLATEAU_DRIFT_SAMPLES)


def _settled_for(history: History) -> float:
    since = history.plans[-1].settled_seconds
    return 0.0 if since is None else history.now_seconds - since


def _for_plateau(history: History, of: Situation, flat: Plateau) -> Plan | None:
    """The fewest cores that keep a speed which more did not raise; None where they are in force.

    A configuration that turned out too small is measured now, so the model knows it: the next one
    is larger, at most the one that is known to make the speed.
    """
    now, kept, params = of.now, flat.kept, of.params
    if now.samples < params.plateau_samples:
        return None
    wanted = _wanted(history, of, flat)
    below = now in flat.free
    gain = flat.steps_per_second / now.steps_per_second - 1 if below else 0.0
    servers_may = of.changes < params.most_server_changes and may_change(history, params, gain)
    choice = least(flat.fitted, of.bounds, now.server_cores, wanted)
    probes = wanted < flat.steps_per_second  # the way back is certain where the servers stay
    if servers_may and not probes:
        other = least(flat.fitted, of.bounds, len(kept.server_cores), wanted)
        if other is not None and (
            choice is None or other.cores < choice.cores * (1 - params.plateau_saving)
        ):
            choice = other
    elif of.changes < params.most_server_changes and not below and not probes:
        return None  # one change of both, as soon as servers may
    tries = plateau.tries(history)
    if below and tries > 1 and kept.cores <= (1 + plateau.LITTLE) * now.cores:
        choice = None  # hardly anything is left to be saved
    # What follows a first choice is better known, and worth less.
    worth = kept.cores * (1 - params.plateau_saving / (2 if tries else 1))
    if choice is not None and choice.cores < worth and tries < MOST_PLATEAU_TRIES:
        return _plateau_plan(history, of, flat, choice)
    same_servers = tuple(now.server_cores) == tuple(kept.server_cores)
    if _configuration(now) != _configuration(kept) and (same_servers or servers_may):
        back = Choice(
            kept.workers,
            math.ceil(kept.worker_cores),
            tuple(math.ceil(core) for core in kept.server_cores),
            flat.steps_per_second,
        )
        return _plateau_plan(history, of, flat, back)
    return None


def _wanted(history: History, of: Situation, flat: Plateau) -> float:
    """What the model has to promise of the next configuration, in steps per second.

    A configuration that the model chose and that makes all of the speed may have more than enough,
    by as much as the model errs. Until one was too small, and has shown by how much, a little less
    than what the model promises of it is tried.
    """
    level, kept = flat.steps_per_second, flat.kept
    wanted = level * (1 + of.params.plateau_headroom)
    near = max((run.steps_per_second for run in flat.free), default=0.0)
    if plateau.tries(history) == 0 or of.now in flat.free or near >= NEAR * level:
        return wanted
    promised = flat.fitted.predict(kept.workers, kept.worker_cores, kept.server_cores)[0]
    return min(wanted, promised) * (1 - of.params.plateau_saving)


def _plateau_plan(history: History, of: Situation, flat: Plateau, choice: Choice) -> Plan:
    same = choice.server_cores == tuple(of.now.server_cores)
    made = made_plan(history, of, choice, keep_servers=same)
    level = flat.steps_per_second
    figures = {
        **made.evidence.figures,
        "plateau_steps_per_second": level,
        "promised_steps_per_second": flat.promised,
        "cores": of.now.cores,
        "cores_next": float(choice.cores),
    }
    return replace(
        made,
        reason=PlanReason.PLATEAU,
        message=(
            f"the speed stays at {level:.3g} steps/s where the model promised "
            f"{flat.promised:.3g}: something outside the job limits it. {choice.cores} cores "
            f"({choice.workers} workers of {choice.worker_cores}) are enough for it; "
            f"{of.now.cores:g} are in use"
        ),
        evidence=replace(made.evidence, figures=figures),
        prediction=Prediction(
            steps_per_second=level,
            error_steps_per_second=max(0.05 * level, 1.645 * flat.kept.error_steps_per_second),
        ),
    )


def _configuration(run: Measurement) -> tuple[int, float, tuple[float, ...]]:
    return run.workers, run.worker_cores, tuple(run.server_cores)


def _drifted(history: History, params: FittedPsParams, least: int = 4) -> bool:
    """Whether the latest samples of this configuration differ from its first ones."""
    since = history.plans[-1].settled_seconds
    speeds = [
        sample.steps_per_second
        for sample in history.samples
        if since is not None
        and sample.time_seconds - sample.interval_seconds >= since
        and all_train(sample)
    ]
    if not speeds:
        return True
    part = max(params.enough_samples, least)
    first, last = sorted(speeds[:part]), sorted(speeds[-part:])
    return abs(last[len(last) // 2] / max(first[len(first) // 2], 1e-9) - 1) > params.drift


def _servers(of: Situation) -> Choice | None:
    """The best choice with other servers: a number whose spread is known, or one worth a trial."""
    spec = of.job.role(Role.PS)
    allowed = {count: spec.clamp(count) == count for count in range(1, of.params.most_servers + 1)}
    known = best(of.fitted, of.bounds, [n for n in of.fitted.work if allowed.get(n)])
    if of.fitted.tensors is not None:
        told = best(of.fitted, of.bounds, [n for n in allowed if allowed[n]])
        least = (1 + of.params.told_gain) * (known.steps_per_second if known else 0.0)
        return told if told is not None and told.steps_per_second > least else known
    full = known is None or max(known.server_cores) >= of.bounds.pod_cores
    if not full or of.changes + 1 >= of.params.most_server_changes:
        return known
    trial = best(of.fitted, of.bounds, [n for n in _untried(of.fitted) if allowed.get(n)])
    if trial is None:
        return known
    # Each trial that has not helped makes the next one less promising.
    least = 1 + of.params.trial_gain * len(of.fitted.work)
    if known is not None and trial.steps_per_second <= known.steps_per_second * least:
        return known
    # Which server will be the fullest is not known before it is measured: equal sizes until then.
    count = len(trial.server_cores)
    even = allocate([1.0] * count, sum(trial.server_cores), of.bounds.pod_cores)
    return Choice(trial.workers, trial.worker_cores, even, trial.steps_per_second)


def _untried(fitted: Fit) -> list[int]:
    """Numbers of servers on which the heavy tensors may spread better, three or four times the
    first one.

    Tensors are placed in turn: heavy ones that met on one server meet again where the numbers have
    a common factor, and rarely meet where they have none and the new one is much larger.
    """
    first = min(fitted.work)
    numbers = range(2 * first + 3, 4 * first + 2)
    return [n for n in numbers if all(math.gcd(n, old) == 1 for old in fitted.work)][::2]


def made_plan(history: History, of: Situation, choice: Choice, *, keep_servers: bool) -> Plan:
    now, limits, margin = of.now, of.limits, 1 + of.params.memory_margin
    roles = {
        Role.WORKER: RolePlan(
            replicas=choice.workers,
            milli_cpu=choice.worker_cores * CORE,
            memory_bytes=pod_memory_bytes(now.worker_memory_bytes * margin, limits)
            if now.worker_memory_bytes
            else None,
        )
    }
    if not keep_servers:
        roles[Role.PS] = _sized(history, of, choice.server_cores)
    speed, error = of.fitted.predict(
        choice.workers, float(choice.worker_cores), [float(core) for core in choice.server_cores]
    )
    servers = (
        "the servers stay"
        if keep_servers
        else f"{len(choice.server_cores)} servers of {_range(choice.server_cores)} cores"
    )
    return Plan(
        stage=next_stage(history),
        algorithm="fitted_ps",
        roles=roles,
        reason=PlanReason.THROUGHPUT_MODEL,
        message=(
            f"{now.steps_per_second:.3g} steps/s now; {choice.workers} workers of "
            f"{choice.worker_cores} cores ({servers}) should make {speed:.3g} ± {error:.2g}"
        ),
        evidence=_evidence(of),
        prediction=Prediction(steps_per_second=speed, error_steps_per_second=error),
    )


def _sized(history: History, of: Situation, cores: Sequence[int]) -> RolePlan:
    """Servers of these cores: the most common size for the role, the others by rank."""
    common = max(sorted(set(cores)), key=list(cores).count)
    before = in_force(history).get(Role.PS, RolePlan()).ranks
    ranks = {
        rank: RankPlan(milli_cpu=size * CORE)
        for rank, size in enumerate(cores)
        if size != common or (rank in before and before[rank].milli_cpu is not None)
    }
    memory = server_memory_bytes(of.now.server_memory_bytes, len(of.now.server_cores), len(cores))
    return RolePlan(
        replicas=len(cores),
        milli_cpu=common * CORE,
        memory_bytes=pod_memory_bytes(memory * (1 + of.params.memory_margin), of.limits)
        if memory
        else None,
        ranks=ranks,
    )


def _evidence(of: Situation) -> Evidence:
    fitted, weight = of.fitted, of.fitted.weight
    figures = {
        "steps_per_second": of.now.steps_per_second,
        "compute_core_seconds": fitted.compute_core_seconds,
        "update_core_seconds": float(fitted.work[fitted.newest].sum()),
        "fullest_server_share": float(
            fitted.work[fitted.newest].max() / fitted.work[fitted.newest].sum()
        ),
        "worker_idle_cores": fitted.idle_cores,
        "worker_parallel_cores": float(weight @ fitted.parallelism),
        "io_seconds": float(weight @ fitted.fixed_seconds),
        "queueing": float(weight @ fitted.queueing),
        "configurations": len(of.runs),
        "server_changes": of.changes,
    }
    return Evidence(
        samples=sum(run.samples for run in of.runs),
        first_sample_seconds=of.runs[0].first_seconds,
        last_sample_seconds=of.now.last_seconds,
        figures={name: value for name, value in figures.items() if math.isfinite(value)},
    )


def _range(cores: Sequence[int]) -> str:
    low, high = min(cores), max(cores)
    return f"{low}" if low == high else f"{low} to {high}"


ALGORITHM: Final = Algorithm(
    name="fitted_ps",
    version="1",
    summary="Workers and servers that a throughput model, fitted to all samples, finds fastest.",
    stages=frozenset({Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset(
        {
            Trigger.SAMPLED,
            Trigger.INTERVAL,
            Trigger.HOT_SERVER,
            Trigger.IDLE_SERVERS,
            Trigger.PROPOSED,
        }
    ),
    strategies=frozenset({Strategy.PARAMETER_SERVER}),
    params=FittedPsParams,
    plan=plan,
)
