"""Jobs with an objective of their own: the cheapest steps, or just fast enough for a deadline.

`spec.objective` says what a job's resources are for; without one, or with Fastest, the other
planners do as they always do. Here

- **Deadline**: the fewest resources that make the steps per second with which the job ends in time
  (`penstock.brain.model.objective`), with a tenth to spare. Where the present ones make them and
  fewer would, the rest is given back; where they do not, the fewest that may are tried. Where none
  are known that do, this answers nothing, and the other planners add what adds speed.
- **Cheapest**: the least that a step costs. Workers of an AllReduce job cost alike, so that is the
  number with the fewest worker-seconds per step: the least one, unless a larger one was measured to
  be cheaper. With parameter servers it is the fewest core-seconds per step that the fitted model
  (`penstock.brain.algorithms.fitted_ps`) knows of; memory is not counted.

- A **budget** (`spec.budget`) that the job is about to exceed counts more than either: the most
  workers that it bears, or a step down where none are known; with parameter servers the cheapest.
  One that is spent makes the job as Cheapest would.

Speeds between counts of workers that were measured are bounded from below by proportion: more
workers never make more per worker. So what is given back for a deadline is given back safely.

What is measured, and how far more workers are tried, is by the parameters of the planner that the
job has else (`scale_allreduce`, `fitted_ps`), as they are configured there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.algorithms.fitted_ps import (
    FittedPsParams,
    Situation,
    for_speed,
    made_plan,
    may_change,
    servers_to_choose,
    situation_of,
)
from penstock.brain.algorithms.scale_allreduce import (
    Measured,
    ScaleAllReduceParams,
    measure,
    most_workers,
    present,
    useful_counts,
)
from penstock.brain.model import budget
from penstock.brain.model.measurement import measurements, settled
from penstock.brain.model.objective import HEADROOM, Aim, aim
from penstock.brain.model.ps_search import Choice, best, cheapest
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
)
from penstock.brain.sizes import next_stage

STEP_DOWN: Final = 1.5
"""How many times fewer workers are tried where nothing is known that a budget bears."""


class ToObjectiveParams(Params):
    """How much must be saved."""

    saving: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Least part of the cores, or of a step's cost, for which parameter servers or their workers
    change."""
    scale_allreduce: SkipJsonSchema[ScaleAllReduceParams] = Field(
        default=ScaleAllReduceParams(), exclude=True
    )
    """As that algorithm has them; set there."""
    fitted_ps: SkipJsonSchema[FittedPsParams] = Field(default=FittedPsParams(), exclude=True)
    """As that algorithm has them; set there."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: ToObjectiveParams
) -> Plan | None:
    """A plan for the job's objective; None where it has none, or is as it should be."""
    wanted = aim(history, job)
    if not (wanted.cheapest or wanted.within_budget) and wanted.needed is None:
        return None
    if job.strategy is Strategy.PARAMETER_SERVER:
        return _with_servers(history, job, limits, params, wanted)
    return _workers(history, job, limits, params.scale_allreduce, wanted)


# ---------------------------------------------------------------------- AllReduce


def _workers(
    history: History,
    job: JobDescription,
    limits: Limits,
    measuring: ScaleAllReduceParams,
    wanted: Aim,
) -> Plan | None:
    measured = measure(history, measuring)
    now = present(history, job, measured)
    if now is None:
        return None
    counts = useful_counts(job, most_workers(history, job, limits))
    known = {count: each for count, each in measured.items() if each.settled}
    if wanted.within_budget:
        return _within_budget(history, job, now, known, counts)
    if wanted.needed is None:
        return _cheapest_workers(history, now, known, counts)
    needed = (wanted.after_change if now.speed >= wanted.needed else wanted.needed) * (1 + HEADROOM)
    if now.speed >= wanted.needed:
        tried: Sequence[int] = range(1, now.workers)
    else:
        tried = range(now.workers + 1, int(now.workers * measuring.growth) + 1)
    enough = [c for c in counts if c in tried and _in_proportion(c, now, known) >= needed]
    if not enough:
        return None
    count = enough[0]
    speed = max(_in_proportion(count, now, known), needed)
    message = (
        f"{wanted.needed:.3g} steps/s are needed for the deadline; {now.workers} workers make "
        f"{now.speed:.3g}, and {count} should make {speed:.3g}"
    )
    figures = {"needed_steps_per_second": wanted.needed, "workers_next": float(count)}
    return _worker_plan(history, now, count, PlanReason.DEADLINE, message, speed, figures)


def _cheapest_workers(
    history: History, now: Measured, known: Mapping[int, Measured], counts: Sequence[int]
) -> Plan | None:
    least = counts[0]
    if least in known:
        ranked = sorted((one for one in known.values() if one.workers in counts), key=_cost)
        best_one = ranked[0]
        cheap = [one for one in ranked if _cost(one) <= _cost(best_one) * (1 + 2 * _doubt(one))]
        count = min(one.workers for one in cheap)
        speed = known[count].speed
    else:
        count, speed = least, now.speed * least / now.workers
    if count == now.workers:
        return None
    message = (
        f"a step costs {_cost(now):.3g} worker-seconds on {now.workers} workers and should cost "
        f"at most {count / speed:.3g} on {count}, the cheapest known"
    )
    figures = {"worker_seconds_per_step": _cost(now), "workers_next": float(count)}
    return _worker_plan(history, now, count, PlanReason.CHEAPEST, message, speed, figures)


def _within_budget(
    history: History,
    job: JobDescription,
    now: Measured,
    known: Mapping[int, Measured],
    counts: Sequence[int],
) -> Plan | None:
    """The most workers that the budget bears to the end; where none are known, a step down.

    Fewer workers never make a step dearer, so that a step down saves, or costs time alone.
    """
    fewer = [count for count in counts if count < now.workers]
    if not fewer:
        return None
    for count in reversed(fewer):
        speed = _between(count, now, known)
        error = 2 * max(one.error for one in known.values())
        prediction = Prediction(steps_per_second=speed, error_steps_per_second=error)
        if budget.fits({Role.WORKER: RolePlan(replicas=count)}, prediction, history, job):
            break
    else:
        count = max((one for one in fewer if one <= now.workers / STEP_DOWN), default=fewer[0])
        speed = _between(count, now, known)
    message = (
        f"{now.workers} workers would cost more than the budget of {job.budget:g}; {count} should "
        f"make {speed:.3g} of the {now.speed:.3g} steps/s for less a step"
    )
    figures = {"worker_seconds_per_step": _cost(now), "workers_next": float(count)}
    return _worker_plan(history, now, count, PlanReason.BUDGET, message, speed, figures)


def _between(count: int, now: Measured, known: Mapping[int, Measured]) -> float:
    """What a count made; between two that were measured at least what lies between their speeds,
    as workers add ever less; else by the speed of each now."""
    if count in known:
        return known[count].speed
    above = min((one for one in known.values() if one.workers > count), key=_workers_of)
    below = max((one for one in known.values() if one.workers < count), key=_workers_of,
                default=None)  # fmt: skip
    if below is None:
        return above.speed * count / above.workers
    part = (count - below.workers) / (above.workers - below.workers)
    return below.speed + part * (above.speed - below.speed)


def _workers_of(one: Measured) -> int:
    return one.workers


def _cost(one: Measured) -> float:
    """Worker-seconds of a step."""
    return one.workers / one.speed


def _doubt(one: Measured) -> float:
    return one.error / one.speed


def _in_proportion(count: int, now: Measured, known: Mapping[int, Measured]) -> float:
    """What a count made; else, by the speed of each now, fewer at least and more at most."""
    return known[count].speed if count in known else now.speed * count / now.workers


def _worker_plan(
    history: History,
    now: Measured,
    count: int,
    reason: PlanReason,
    message: str,
    speed: float,
    figures: Mapping[str, float],
) -> Plan:
    return Plan(
        stage=next_stage(history),
        algorithm=ALGORITHM.name,
        roles={Role.WORKER: RolePlan(replicas=count)},
        reason=reason,
        message=message,
        evidence=Evidence(
            samples=now.samples,
            last_sample_seconds=now.last_seconds,
            figures={
                "workers": float(now.workers),
                "steps_per_second": now.speed,
                "error_steps_per_second": now.error,
                **figures,
            },
        ),
        prediction=Prediction(
            steps_per_second=speed,
            error_steps_per_second=max(0.1 * speed, abs(now.speed - speed) / 2),
        ),
    )


# ---------------------------------------------------------------------- parameter servers


def _with_servers(
    history: History,
    job: JobDescription,
    limits: Limits,
    params: ToObjectiveParams,
    wanted: Aim,
) -> Plan | None:
    fitting = params.fitted_ps
    now = settled(history, job, fitting.enough_samples)
    if now is None or limits.milli_cpu is None or now.steps_per_second <= 0:
        return None
    of = situation_of(history, job, limits, fitting, now, measurements(history, job))
    if wanted.needed is not None:
        return _for_deadline(history, of, params, wanted)
    options = servers_to_choose(history, of)
    fastest = best(of.fitted, of.bounds, [one for one in options if isinstance(one, int)])
    top = max(now.steps_per_second, fastest.steps_per_second if fastest else 0.0)
    choice = cheapest(of.fitted, of.bounds, options, top)
    if choice is None:
        return None
    cost, cost_next = now.cores / now.steps_per_second, choice.cores / choice.steps_per_second
    if cost_next > cost * (1 - params.saving):
        return None
    message = (
        f"a step costs {cost:.3g} core-seconds and should cost {cost_next:.3g} with {choice.cores} "
        f"cores, at {choice.steps_per_second:.3g} steps/s; {now.cores:g} are in use"
    )
    return _server_plan(history, of, choice, PlanReason.CHEAPEST, message)


def _for_deadline(
    history: History, of: Situation, params: ToObjectiveParams, wanted: Aim
) -> Plan | None:
    now, needed = of.now, wanted.needed or 0.0
    enough = now.steps_per_second >= needed
    choice = for_speed(history, of, wanted.after_change if enough else needed)
    if choice is None:
        return None
    if enough and choice.cores > now.cores * (1 - params.saving):
        return None
    message = (
        f"{needed:.3g} steps/s are needed for the deadline; {now.cores:g} cores make "
        f"{now.steps_per_second:.3g}, and {choice.cores} should make {choice.steps_per_second:.3g}"
    )
    return _server_plan(history, of, choice, PlanReason.DEADLINE, message)


def _server_plan(
    history: History, of: Situation, choice: Choice, reason: PlanReason, message: str
) -> Plan | None:
    same = choice.server_cores == tuple(of.now.server_cores)
    if same and (choice.workers, choice.worker_cores) == (of.now.workers, of.now.worker_cores):
        return None
    if not same and not may_change(history, of.params, 0.0):
        return None
    made = made_plan(history, of, choice, keep_servers=same)
    return replace(made, algorithm=ALGORITHM.name, reason=reason, message=message)


ALGORITHM: Final = Algorithm(
    name="to_objective",
    version="1",
    summary="Plans for spec.objective: the cheapest steps, or the fewest resources for a deadline.",
    stages=frozenset({Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset({Trigger.SAMPLED, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset({Strategy.ALL_REDUCE, Strategy.PARAMETER_SERVER}),
    params=ToObjectiveParams,
    plan=plan,
    borrows=frozenset({"fitted_ps", "scale_allreduce"}),
)
