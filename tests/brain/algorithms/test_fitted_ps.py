"""The fitted model is asked when it can know, and changes what is worth its cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.fitted_ps import FittedPsParams, plan
from penstock.brain.planning import AppliedPlan, History, Limits, Plan, RoleSpec
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of

LIMITS = Limits(milli_cpu=200_000)
UNEVEN = [1.0, 1.0, 2.5, 1.2]


def one_worker(*, quota: Limits = LIMITS, params: FittedPsParams | None = None) -> Plan | None:
    """Wide & Deep's single worker beside four servers, one of which has more to do."""
    return plan(first_history(), ps_job(), quota, params or FittedPsParams())


def first_history() -> History:
    samples = run_of(
        5,
        speed=12.0,
        workers=1,
        worker_cores=32.0,
        worker_used=2.5,
        servers=[(32.0, used) for used in UNEVEN],
    )
    return ps_history(samples, in_force_plan(1, 32, 4, 32))


def cores(made: Plan) -> list[int]:
    server = made.roles[Role.PS]
    return [
        (server.ranks[rank].milli_cpu if rank in server.ranks else server.milli_cpu) or 0
        for rank in range(server.replicas or 0)
    ]


def test_one_worker_is_enough_to_plan_workers_and_servers_at_once() -> None:
    made = one_worker()
    assert made is not None
    assert made.stage is Stage.OPTIMIZE
    worker = made.roles[Role.WORKER]
    total = (worker.replicas or 0) * (worker.milli_cpu or 0) + sum(cores(made))
    assert 180_000 <= total <= 200_000
    assert (worker.replicas or 0) > 10
    assert made.prediction is not None
    assert made.prediction.error_steps_per_second > 0
    assert made.evidence.figures["update_core_seconds"] == pytest.approx(5.7 / 12)


def test_servers_are_sized_by_their_work() -> None:
    made = one_worker(quota=Limits(milli_cpu=100_000))
    assert made is not None
    sizes = cores(made)
    assert len(sizes) == 4
    assert sizes[2] == max(sizes) > 1.5 * min(sizes)
    assert [size / used for size, used in zip(sizes, UNEVEN, strict=True)] == pytest.approx(
        [sum(sizes) / sum(UNEVEN)] * 4, rel=0.12
    )


def test_nothing_is_planned_without_a_quota_or_enough_samples() -> None:
    assert one_worker(quota=Limits()) is None
    assert one_worker(params=FittedPsParams(enough_samples=9)) is None


def test_bounds_of_the_spec_hold() -> None:
    made = plan(
        first_history(),
        ps_job(most_workers=6, ps=RoleSpec(fixed=4)),
        LIMITS,
        FittedPsParams(),
    )
    assert made is not None
    assert (made.roles[Role.WORKER].replicas or 0) <= 6
    assert Role.PS not in made.roles or made.roles[Role.PS].replicas == 4


def misfit(*, settled: float, changed: int = 1) -> History:
    """Twenty workers that starve beside small servers, after `changed` changes of servers."""
    create = in_force_plan(1, 32, 4, 32, at=NOW - 2000, settled=NOW - 1900)
    others: list[AppliedPlan] = [
        in_force_plan(20, 3, 4, 4, stage=Stage.OPTIMIZE, at=settled - 120, settled=settled)
        for _ in range(changed)
    ]
    alone = run_of(
        5,
        end=NOW - 1700,
        speed=12.0,
        workers=1,
        worker_cores=32.0,
        worker_used=2.5,
        servers=[(32.0, used) for used in UNEVEN],
    )
    now = run_of(
        6,
        speed=18.0,
        workers=20,
        worker_cores=3.0,
        worker_used=0.4,
        servers=[(4.0, 1.5 * used) for used in UNEVEN],
    )
    return ps_history((*alone, *now), create, *others)


def test_servers_rest_between_changes_and_workers_do_not() -> None:
    rested = plan(misfit(settled=NOW - 400), ps_job(), LIMITS, FittedPsParams())
    assert rested is not None
    assert Role.PS in rested.roles
    dear = FittedPsParams(change_seconds=10_000)
    restless = plan(misfit(settled=NOW - 150), ps_job(), LIMITS, dear)
    assert restless is None or Role.PS not in restless.roles


def test_servers_do_not_wait_where_waiting_loses_more_than_a_change() -> None:
    at_once = plan(misfit(settled=NOW - 150), ps_job(), LIMITS, FittedPsParams())
    assert at_once is not None
    assert Role.PS in at_once.roles
    in_effect_soon = misfit(settled=NOW - 150)
    *before, last = in_effect_soon.plans
    unsettled = replace(in_effect_soon, plans=(*before, replace(last, settled_seconds=None)))
    made = plan(unsettled, ps_job(), LIMITS, FittedPsParams())
    assert made is None or Role.PS not in made.roles


def test_servers_change_only_so_often() -> None:
    made = plan(misfit(settled=NOW - 400, changed=3), ps_job(), LIMITS, FittedPsParams())
    assert made is None or Role.PS not in made.roles


def test_a_rank_that_had_its_own_size_is_given_the_new_one() -> None:
    history = misfit(settled=NOW - 400)
    first = one_worker(quota=Limits(milli_cpu=100_000))
    assert first is not None
    sized = AppliedPlan(
        applied_seconds=NOW - 600, settled_seconds=NOW - 500, roles=first.roles, stage=first.stage
    )
    plans = (history.plans[0], sized, history.plans[1])
    made = plan(ps_history(history.samples, *plans), ps_job(), LIMITS, FittedPsParams())
    assert made is not None
    kept = set(first.roles[Role.PS].ranks)
    assert kept <= set(made.roles[Role.PS].ranks), "an old exception would outlive the plan"
