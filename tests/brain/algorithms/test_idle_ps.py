"""Idle servers get more workers, spare ones beyond the quota."""

from __future__ import annotations

from dataclasses import replace

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.idle_ps import IdlePsParams, plan
from penstock.brain.planning import Limits, Plan, PlanReason
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of


def ask(used: float, *, quota: int, spare: int = 0, ceiling: int = 100) -> Plan | None:
    """xDeepFM of the paper: 8 workers of 20 cores, 2 servers of 16 that use `used` in all."""
    samples = run_of(
        5,
        speed=47.8,
        workers=8,
        worker_cores=20.0,
        worker_used=18.3,
        servers=[(16.0, used / 2)] * 2,
    )
    history = ps_history(samples, in_force_plan(8, 20, 2, 16, stage=Stage.OPTIMIZE))
    limits = Limits(milli_cpu=quota * 1000)
    return plan(history, ps_job(spare=spare), limits, IdlePsParams(ceiling=ceiling))


def test_within_the_quota_they_are_workers_like_the_others() -> None:
    made = ask(24.0, quota=300)
    assert made is not None
    worker = made.roles[Role.WORKER]
    assert (worker.replicas, worker.spare_replicas) == (10, 0)


def test_beyond_the_quota_they_are_spare() -> None:
    made = ask(24.0, quota=200, spare=5)
    assert made is not None
    worker = made.roles[Role.WORKER]
    assert (worker.replicas, worker.spare_replicas) == (8, 2)
    assert ask(24.0, quota=200, spare=0) is None


def test_busy_servers_get_no_more_workers() -> None:
    assert ask(27.4, quota=300) is None


def test_the_ceiling_holds() -> None:
    made = ask(4.0, quota=1000, ceiling=12)
    assert made is not None
    assert made.roles[Role.WORKER].replicas == 12


def test_servers_that_are_idle_at_a_plateau_get_no_more_workers() -> None:
    samples = run_of(
        5,
        speed=47.8,
        workers=8,
        worker_cores=20.0,
        worker_used=18.3,
        servers=[(16.0, 12.0)] * 2,
    )
    level = in_force_plan(8, 20, 2, 16, stage=Stage.ADJUST)
    history = ps_history(samples, replace(level, reason=PlanReason.PLATEAU))
    assert plan(history, ps_job(), Limits(milli_cpu=300_000), IdlePsParams()) is None
