"""An objective of the job's own: cheap steps, or an end in time with as little as that takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from penstock.base.enums import Objective, Role, Stage
from penstock.brain.algorithms import fitted_ps, scale_allreduce, to_objective
from penstock.brain.algorithms.fitted_ps import FittedPsParams
from penstock.brain.algorithms.scale_allreduce import ScaleAllReduceParams
from penstock.brain.algorithms.to_objective import ToObjectiveParams
from penstock.brain.model.objective import Aim, aim, needed_speed
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    Plan,
    PlanReason,
    RankSample,
    RolePlan,
    RoleSpec,
    Sample,
)
from penstock.brain.registry import AlgorithmSettings, load
from tests.brain.jobs import NOW, allreduce_samples, applied, history, job
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of

MOST = 32
CHANGE_SECONDS = 60.0


def ask(history: History, job: JobDescription) -> Plan | None:
    """As the Brain does: the first plan wins."""
    made = to_objective.plan(history, job, Limits(), ToObjectiveParams())
    return made or scale_allreduce.plan(history, job, Limits(), ScaleAllReduceParams())


@dataclass
class Run:
    """A job of the simulated world below, as it ended."""

    seconds: float
    worker_seconds: float
    workers: int
    changes: int


def run(wanted: JobDescription, serial: float, noise: float, seed: int) -> Run:
    """Train its steps by Amdahl's law, with a sample every 15 s and a look each minute."""
    rng = np.random.default_rng(seed)
    done, now, paid, workers, steps = 0.0, 0.0, 0.0, 1, wanted.total_steps or 0
    samples: list[Sample] = []
    plans = [applied(stage=Stage.CREATE, workers=1, at=-20.0)]
    while done < steps and now < 100_000:
        for _ in range(4):
            speed = 10 * workers / (1 + serial * (workers - 1)) * float(rng.lognormal(0, noise))
            now, done, paid = now + 15, done + 15 * speed, paid + 15 * workers
            rows = {rank: RankSample(milli_cpu=900.0) for rank in range(workers)}
            samples.append(
                Sample(
                    time_seconds=now,
                    step=int(done),
                    steps_per_second=speed,
                    world_size=workers,
                    roles={Role.WORKER: rows},
                )
            )
        known = tuple(one for one in samples if one.time_seconds >= now - 1800)
        made = ask(History(now_seconds=now, samples=known, plans=tuple(plans)), wanted)
        if made is not None:
            workers = made.roles[Role.WORKER].replicas or workers
            now, paid = now + CHANGE_SECONDS, paid + CHANGE_SECONDS * workers
            role = RolePlan(replicas=workers)
            plans.append(
                AppliedPlan(
                    applied_seconds=now,
                    settled_seconds=now,
                    roles={Role.WORKER: role},
                    stage=made.stage,
                    reason=made.reason,
                )
            )
    return Run(now, paid, workers, len(plans) - 1)


def with_objective(objective: Objective, deadline: float, steps: int) -> JobDescription:
    return replace(
        job(worker=RoleSpec(maximum=MOST)),
        objective=objective,
        deadline_seconds=deadline if objective is Objective.DEADLINE else None,
        total_steps=steps,
    )


@pytest.mark.parametrize("slack", [1.6, 4.0])
@pytest.mark.parametrize(
    ("serial", "noise", "seed"), [(0.0, 0.02, 1), (0.03, 0.05, 2), (0.2, 0.03, 3), (0.0, 0.0, 0)]
)
def test_a_deadline_that_can_be_kept_is_kept_with_fewer_workers(
    serial: float, noise: float, slack: float, seed: int
) -> None:
    steps = 150_000
    world = serial, noise, seed
    fastest = run(with_objective(Objective.FASTEST, 0, steps), *world)
    limit = slack * fastest.seconds
    kept = run(with_objective(Objective.DEADLINE, limit, steps), *world)
    cheap = run(with_objective(Objective.CHEAPEST, 0, steps), *world)
    assert kept.seconds <= limit
    assert kept.worker_seconds <= fastest.worker_seconds * 1.02
    assert cheap.worker_seconds <= kept.worker_seconds * 1.1
    assert cheap.workers == 1 or serial < 0.05
    assert kept.changes <= 16


def test_what_is_too_much_for_a_deadline_is_given_back() -> None:
    samples = allreduce_samples([(8, [40.0] * 8)])
    plans = (
        applied(stage=Stage.CREATE, workers=1, at=NOW - 1800),
        applied(stage=Stage.OPTIMIZE, workers=8),
    )
    wanted = with_objective(Objective.DEADLINE, NOW + 10_060, 100_700)
    made = ask(history(samples=samples, plans=plans), wanted)
    assert made is not None
    assert made.algorithm == "to_objective"
    assert made.reason == PlanReason.DEADLINE
    assert made.roles[Role.WORKER].replicas == 3, "10 steps/s are needed, and a tenth more"
    assert "10 steps/s are needed" in made.message
    assert made.evidence.figures["needed_steps_per_second"] == pytest.approx(10.0)


def test_a_deadline_in_the_past_makes_the_job_fast() -> None:
    past = with_objective(Objective.DEADLINE, NOW - 1, 100_000)
    found = history(samples=allreduce_samples([(1, [10.0] * 6)]))
    assert needed_speed(found, past) == float("inf")
    assert aim(found, past) == Aim(fastest=True)
    near = with_objective(Objective.DEADLINE, NOW + 30, 100_000)
    assert aim(found, near) == Aim(fastest=True), "no time is left beside that of a change"


def test_without_a_known_end_a_deadline_changes_nothing() -> None:
    wanted = replace(with_objective(Objective.DEADLINE, NOW + 10, 1), total_steps=None)
    assert aim(history(), wanted) == Aim()
    assert aim(history(), job()) == Aim()


def test_what_nearly_makes_it_gets_the_least_that_may() -> None:
    samples = allreduce_samples([(4, [36.0] * 8)])
    plans = (
        applied(stage=Stage.CREATE, workers=1, at=NOW - 1800),
        applied(stage=Stage.OPTIMIZE, workers=4),
    )
    wanted = with_objective(Objective.DEADLINE, NOW + 1060, 40_700)
    made = ask(history(samples=samples, plans=plans), wanted)
    assert made is not None
    assert made.roles[Role.WORKER].replicas == 5


@pytest.mark.parametrize(("growth", "replicas"), [(2.0, 7), (1.5, None)])
def test_no_more_workers_are_tried_than_the_configuration_allows(
    growth: float, replicas: int | None
) -> None:
    samples = allreduce_samples([(4, [40.0] * 8)])
    plans = (
        applied(stage=Stage.CREATE, workers=1, at=NOW - 1800),
        applied(stage=Stage.OPTIMIZE, workers=4),
    )
    wanted = with_objective(Objective.DEADLINE, NOW + 1060, 60_000 + 700)
    chosen = AlgorithmSettings(params={"growth": growth})
    registry = load({"scale_allreduce": chosen})
    found = history(samples=samples, plans=plans)
    made = registry["to_objective"].plan(found, wanted, Limits())
    assert (None if made is None else made.roles[Role.WORKER].replicas) == replicas


# ---------------------------------------------------------------------- parameter servers

LIMITS = Limits(milli_cpu=200_000)


@pytest.mark.parametrize(("samples", "planned"), [(3, True), (20, False)])
def test_servers_are_measured_as_their_own_planner_is_configured_to(
    samples: int, planned: bool
) -> None:
    registry = load({"fitted_ps": AlgorithmSettings(params={"enough_samples": samples})})
    found, wanted = busy_servers(Objective.DEADLINE, 60.0)
    made = registry["to_objective"].plan(found, wanted, LIMITS)
    assert (made is not None) == planned


def busy_servers(
    objective: Objective, needed: float | None = None
) -> tuple[History, JobDescription]:
    samples = run_of(
        5,
        speed=12.0,
        workers=1,
        worker_cores=32.0,
        worker_used=2.5,
        servers=[(32.0, used) for used in (1.0, 1.0, 2.5, 1.2)],
    )
    found = ps_history(samples, in_force_plan(1, 32, 4, 32))
    step = samples[-1].step
    wanted = replace(
        ps_job(),
        objective=objective,
        total_steps=step + 100_000,
        deadline_seconds=NOW + 60 + 100_000 / needed if needed else None,
    )
    return found, wanted


def servers(objective: Objective, needed: float | None = None) -> Plan | None:
    found, wanted = busy_servers(objective, needed)
    made = to_objective.plan(found, wanted, LIMITS, ToObjectiveParams())
    if made is not None:
        assert fitted_ps.plan(found, wanted, LIMITS, FittedPsParams()) is None, "one plans it"
    return made or fitted_ps.plan(found, wanted, LIMITS, FittedPsParams())


def cores(made: Plan) -> int:
    total = 0
    for role in made.roles.values():
        ranks = role.ranks
        for rank in range(role.replicas or 0):
            own = ranks[rank].milli_cpu if rank in ranks else None
            total += own or role.milli_cpu or 0
    return total // 1000


def test_servers_and_workers_are_as_few_as_a_deadline_allows() -> None:
    fast, slow, slower = (
        servers(Objective.FASTEST),
        servers(Objective.DEADLINE, 60.0),
        servers(Objective.DEADLINE, 25.0),
    )
    assert fast is not None
    assert slow is not None
    assert slower is not None
    assert cores(slower) < cores(slow) < cores(fast)
    assert slow.algorithm == "to_objective"
    assert slow.prediction is not None
    assert slow.prediction.steps_per_second >= 60.0


def test_a_deadline_that_no_servers_can_keep_gets_the_fastest() -> None:
    fast, hopeless = servers(Objective.FASTEST), servers(Objective.DEADLINE, 1e6)
    assert fast is not None
    assert hopeless is not None
    assert hopeless.roles == fast.roles
    assert hopeless.algorithm == "fitted_ps"


def test_the_cheapest_steps_need_few_cores() -> None:
    cheap, fast = servers(Objective.CHEAPEST), servers(Objective.FASTEST)
    assert cheap is not None
    assert fast is not None
    assert cheap.prediction is not None
    assert fast.prediction is not None
    assert cheap.reason == PlanReason.CHEAPEST
    cost = cores(cheap) / cheap.prediction.steps_per_second
    assert cost <= cores(fast) / fast.prediction.steps_per_second
