"""The fitted model is asked when it can know, and changes what is worth its cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.fitted_ps import MOST_PLATEAU_TRIES, FittedPsParams, plan
from penstock.brain.planning import (
    AppliedPlan,
    History,
    Limits,
    Plan,
    PlanReason,
    RolePlan,
    RoleSpec,
)
from penstock.brain.sizes import GIB
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


@pytest.mark.parametrize(("used", "planned"), [(1.0, 1.0), (9.0, 1 + 2 * 8 * 2 / 7)])
def test_more_servers_keep_what_the_process_itself_needs(used: float, planned: float) -> None:
    """Servers as large as they may be: more of them are tried, and hold fewer parameters each."""
    held = round(used * GIB)
    samples = run_of(
        6,
        speed=14.0,
        workers=12,
        worker_cores=3.0,
        worker_used=2.9,
        servers=[(8.0, 7.9)] * 2,
        server_memory=dict.fromkeys(range(2), (held, 2 * held)),
    )
    before = in_force_plan(12, 3, 2, 8, stage=Stage.OPTIMIZE, at=NOW - 800, settled=NOW - 700)
    first = in_force_plan(1, 3, 2, 8, at=NOW - 1200, settled=NOW - 1100)
    history = ps_history(samples, first, before)
    limits = Limits(milli_cpu=200_000, pod_milli_cpu=8_000)
    made = plan(history, ps_job(), limits, FittedPsParams())
    assert made is not None
    server = made.roles[Role.PS]
    assert server.replicas == 7
    assert (server.memory_bytes or 0) >= 1.2 * planned * GIB


def test_many_samples_in_a_short_time_are_no_judgement() -> None:
    """Samples of 3 s: 20 of them are there before the first usual look at a job."""

    def asked_after(seconds: float) -> Plan | None:
        samples = tuple(
            replace(one, time_seconds=NOW - 3 * back, interval_seconds=3.0)
            for back, one in enumerate(first_history().samples * 4)
        )[::-1]
        started = in_force_plan(1, 32, 4, 32, at=NOW - seconds - 30, settled=NOW - seconds)
        return plan(ps_history(samples, started), ps_job(), LIMITS, FittedPsParams())

    assert asked_after(62) is not None
    assert asked_after(119) is not None
    assert asked_after(121) is None, "judged by now: more looks would only follow the noise"


def test_servers_are_judged_anew_at_the_second_look_after_their_change() -> None:
    """Looks are 300 s apart then, from the plan on: the first is too early for the servers."""

    def asked_after(seconds: float) -> Plan | None:
        history = misfit(settled=NOW - seconds)
        alone, now = history.samples[:5], history.samples[5:]
        long = tuple(
            replace(one, time_seconds=NOW - 15 * back) for back, one in enumerate(now * 2)
        )[::-1]
        return plan(replace(history, samples=(*alone, *long)), ps_job(), LIMITS, FittedPsParams())

    assert asked_after(270) is None
    assert asked_after(570) is not None
    assert asked_after(730) is None


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


LIGHT = [0.4, 0.4, 0.6, 0.5]


def bounded_history(speed: float) -> History:
    """One worker alone, then 24 of them that something holds at `speed`."""
    servers = [(32.0, used) for used in LIGHT]
    alone = run_of(
        6, end=NOW - 900, speed=12.0, workers=1, worker_cores=32.0, worker_used=2.5, servers=servers
    )
    many = run_of(
        10,
        end=NOW - 600,
        speed=speed,
        workers=24,
        worker_cores=3.0,
        worker_used=0.1 + 2.4 * speed / 24 / 12,
        servers=[(20.0, used * speed / 12) for used in LIGHT],
    )
    wide = in_force_plan(24, 3, 4, 20, stage=Stage.OPTIMIZE, at=NOW - 880, settled=NOW - 760)
    first = in_force_plan(1, 32, 4, 32, at=NOW - 1200, settled=NOW - 1100)
    return ps_history((*alone, *many), first, wide, now=NOW - 600)


def test_a_speed_that_something_else_limits_needs_fewer_cores() -> None:
    history = replace(bounded_history(100.0), now_seconds=NOW - 400)
    made = plan(history, ps_job(), LIMITS, FittedPsParams())
    assert made is not None
    assert made.reason == PlanReason.PLATEAU
    assert "something outside the job limits it" in made.message
    figures = made.evidence.figures
    assert figures["plateau_steps_per_second"] == pytest.approx(100)
    assert figures["promised_steps_per_second"] > 200
    assert figures["cores_next"] < 0.75 * figures["cores"]
    assert made.roles[Role.PS].replicas == 4
    assert made.prediction is not None
    assert made.prediction.steps_per_second == pytest.approx(100)


def test_a_plateau_is_waited_for() -> None:
    history = bounded_history(100.0)
    few = replace(history, samples=history.samples[:-5], now_seconds=NOW - 675)
    assert plan(few, ps_job(), LIMITS, FittedPsParams()) is None


def test_a_speed_that_the_model_explains_keeps_its_cores() -> None:
    made = plan(bounded_history(240.0), ps_job(), LIMITS, FittedPsParams())
    assert made is None or made.reason != PlanReason.PLATEAU


def test_too_small_a_configuration_goes_back_at_most_to_the_known_one() -> None:
    small = run_of(
        10,
        end=NOW,
        speed=85.0,
        workers=9,
        worker_cores=3.0,
        worker_used=1.8,
        servers=[(8.0, used * 85 / 12) for used in LIGHT],
    )
    before = bounded_history(100.0)
    reduced = AppliedPlan(
        applied_seconds=NOW - 400,
        settled_seconds=NOW - 150,
        stage=Stage.ADJUST,
        reason=PlanReason.PLATEAU,
        roles={
            Role.WORKER: RolePlan(replicas=9, milli_cpu=3000),
            Role.PS: RolePlan(replicas=4, milli_cpu=8000),
        },
    )
    history = replace(
        before,
        now_seconds=NOW,
        samples=(*before.samples, *small),
        plans=(*before.plans, reduced),
    )
    made = plan(history, ps_job(), LIMITS, FittedPsParams())
    assert made is not None
    assert made.reason == PlanReason.PLATEAU
    assert made.evidence.figures["cores_next"] < 24 * 3 + 80

    tried = replace(history, plans=(*before.plans, *(reduced,) * MOST_PLATEAU_TRIES))
    back = plan(tried, ps_job(), LIMITS, FittedPsParams(most_server_changes=9, change_seconds=1))
    assert back is not None
    assert back.evidence.figures["cores_next"] == 24 * 3 + 80, "what is known to make the speed"
