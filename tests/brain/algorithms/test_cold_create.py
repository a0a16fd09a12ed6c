"""The first plan of a job of which nothing is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.algorithms.cold_create import ColdCreateParams, plan
from penstock.brain.plan_check import check
from penstock.brain.planning import Limits, PlanReason, RoleSpec
from penstock.brain.sizes import GIB
from tests.brain.jobs import applied, history, job

PARAMS = ColdCreateParams()


def test_allreduce_starts_on_the_fewest_workers() -> None:
    made = plan(history(), job(worker=RoleSpec(minimum=2, maximum=8)), Limits(), PARAMS)
    assert made is not None
    assert made.stage is Stage.CREATE
    assert made.reason == PlanReason.NO_HISTORY
    assert made.roles[Role.WORKER].replicas == 2
    assert made.roles[Role.WORKER].milli_cpu == 1000
    assert set(made.roles) == {Role.WORKER}


@pytest.mark.parametrize(
    ("limit", "most", "each"),
    [
        (None, 4, 1000),
        (2_000, 2, 1000),
        (2_000, 4, 1000),
        (8_000, 4, 2000),
        (9_500, 4, 2000),
        (1_000_000, 4, 32_000),
        (500, 1, 500),
    ],
)
def test_worker_cpu_is_a_share_of_the_limits_and_at_least_a_core(
    limit: int | None, most: int, each: int
) -> None:
    spec = RoleSpec(minimum=1, maximum=most)
    made = plan(history(), job(worker=spec), Limits(milli_cpu=limit), PARAMS)
    assert made is not None
    assert made.roles[Role.WORKER].milli_cpu == each
    if limit is not None:
        assert each * (made.roles[Role.WORKER].replicas or 0) <= limit


def test_the_templates_requests_stand() -> None:
    spec = RoleSpec(milli_cpu=1500, memory_bytes=GIB)
    made = plan(history(), job(worker=spec), Limits(milli_cpu=8_000), PARAMS)
    assert made is not None
    assert made.roles[Role.WORKER].milli_cpu == 1500
    assert made.roles[Role.WORKER].memory_bytes == GIB


def test_local_has_one_worker() -> None:
    made = plan(history(), job(Strategy.LOCAL, worker=RoleSpec()), Limits(milli_cpu=4000), PARAMS)
    assert made is not None
    assert made.roles[Role.WORKER].replicas == 1
    assert made.roles[Role.WORKER].milli_cpu == 4000


def test_servers_start_with_one_worker_and_as_large_as_a_pod_may_be() -> None:
    limits = Limits(milli_cpu=200_000, pod_milli_cpu=32_000)
    made = plan(history(), job(Strategy.PARAMETER_SERVER), limits, PARAMS)
    assert made is not None
    worker, server = made.roles[Role.WORKER], made.roles[Role.PS]
    assert (worker.replicas, server.replicas) == (1, 4)
    assert worker.milli_cpu == server.milli_cpu == 32_000
    assert worker.memory_bytes == server.memory_bytes == 8 * GIB


def test_servers_fit_a_small_quota() -> None:
    made = plan(history(), job(Strategy.PARAMETER_SERVER), Limits(milli_cpu=4_000), PARAMS)
    assert made is not None
    total = sum((role.replicas or 0) * (role.milli_cpu or 0) for role in made.roles.values())
    assert total <= 4_000
    assert made.roles[Role.PS].replicas == 1


def test_fixed_counts_are_kept() -> None:
    made = plan(
        history(),
        job(Strategy.PARAMETER_SERVER, worker=RoleSpec(fixed=3), ps=RoleSpec(fixed=4)),
        Limits(milli_cpu=100_000),
        PARAMS,
    )
    assert made is not None
    assert (made.roles[Role.WORKER].replicas, made.roles[Role.PS].replicas) == (3, 4)


def test_a_job_with_a_plan_gets_no_other() -> None:
    before = history(plans=(applied(stage=Stage.CREATE, workers=1),))
    assert plan(before, job(), Limits(), PARAMS) is None


@given(memory=st.integers(GIB // 2, 64 * GIB), cores=st.integers(6, 200), servers=st.integers(1, 4))
def test_a_first_plan_keeps_to_the_limits(memory: int, cores: int, servers: int) -> None:
    limits = Limits(milli_cpu=cores * 1000, memory_bytes=memory, pod_milli_cpu=32_000)
    wanted = job(Strategy.PARAMETER_SERVER, ps=RoleSpec(maximum=servers))
    made = plan(history(), wanted, limits, PARAMS)
    assert made is not None
    check(made, wanted, limits, history())
