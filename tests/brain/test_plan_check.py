"""Nothing beyond a job's spec and limits is put in force, whoever planned it."""

from __future__ import annotations

import pytest

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.plan_check import PlanRefusedError, check
from penstock.brain.planning import Limits, Plan, RankPlan, RolePlan, RoleSpec
from penstock.brain.sizes import GIB
from tests.brain.jobs import applied, history, job

PS_JOB = job(Strategy.PARAMETER_SERVER, worker=RoleSpec(minimum=1, maximum=8))
LIMITS = Limits(milli_cpu=10_000, memory_bytes=16 * GIB, pod_milli_cpu=4_000)


def a_plan(role: Role = Role.WORKER, **fields: object) -> Plan:
    roles = {role: RolePlan(**fields)}  # type: ignore[arg-type]  # each test names its own fields
    return Plan(stage=Stage.ADJUST, algorithm="x", roles=roles, reason="Test", message="because")


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (a_plan(replicas=9), r"worker\.replicas = 9: the spec allows 1 to 8"),
        (a_plan(replicas=0), r"worker\.replicas = 0"),
        (a_plan(spare_replicas=1), r"worker\.spareReplicas = 1: the spec allows 0"),
        (a_plan(milli_cpu=5_000), r"worker\.resources\.cpu = 5000m: a pod may have 4000m"),
        (a_plan(Role.PS, ranks={1: RankPlan(milli_cpu=9_000)}), r"ps\.ranks\.1\.cpu = 9000m"),
        (a_plan(replicas=6, milli_cpu=2_000), r"= 12000: the job's limit is 10000"),
        (a_plan(replicas=4, memory_bytes=5 * GIB), r"memory .* limit is"),
    ],
)
def test_what_is_beyond_is_refused_with_field_value_and_rule(plan: Plan, problem: str) -> None:
    with pytest.raises(PlanRefusedError, match=problem):
        check(plan, PS_JOB, LIMITS, history())


def test_what_fits_passes() -> None:
    check(a_plan(replicas=5, milli_cpu=2_000), PS_JOB, LIMITS, history())


def test_what_other_plans_hold_counts_too() -> None:
    before = history(plans=(applied(stage=Stage.CREATE, workers=5, milli_cpu=2_000),))
    with pytest.raises(PlanRefusedError, match="= 12000"):
        check(a_plan(Role.PS, replicas=1, milli_cpu=2_000), PS_JOB, LIMITS, before)
    with pytest.raises(PlanRefusedError, match="= 12000"):
        check(a_plan(replicas=6), PS_JOB, LIMITS, before)


def test_a_job_without_servers_is_given_none() -> None:
    with pytest.raises(PlanRefusedError, match="has no such role"):
        check(a_plan(Role.PS, replicas=1), job(), LIMITS, history())


def test_a_fixed_count_is_kept() -> None:
    fixed = job(worker=RoleSpec(fixed=3))
    with pytest.raises(PlanRefusedError, match="fixes it at 3"):
        check(a_plan(replicas=2), fixed, LIMITS, history())
