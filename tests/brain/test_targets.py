"""A plan reads as the targets of a Scale."""

from __future__ import annotations

from penstock.base.enums import Role, Stage
from penstock.brain.planning import DataWorkerDemand, Plan, RankPlan, RolePlan
from penstock.brain.sizes import GIB
from penstock.brain.targets import role_targets


def a_plan(roles: dict[Role, RolePlan]) -> Plan:
    return Plan(
        stage=Stage.ADJUST,
        algorithm="x",
        roles=roles,
        reason="Test",
        message="because",
        data_workers=DataWorkerDemand(replicas=1, milli_cpu=1000),
    )


def test_integers_become_quantities() -> None:
    role = RolePlan(replicas=3, milli_cpu=1500, memory_bytes=2 * GIB)
    targets = role_targets(a_plan({Role.WORKER: role}))
    assert targets[Role.WORKER].model_dump(by_alias=True, exclude_none=True) == {
        "replicas": 3,
        "resources": {"cpu": "1500m", "memory": "2Gi"},
    }


def test_ranks_are_sized_replaced_and_moved() -> None:
    ranks = {
        2: RankPlan(milli_cpu=24_000),
        0: RankPlan(replace=True, avoid_nodes=("n1",)),
        1: RankPlan(),
    }
    targets = role_targets(a_plan({Role.PS: RolePlan(ranks=ranks)}), {Role.PS: {0: 4}})
    assert targets[Role.PS].model_dump(by_alias=True, exclude_none=True) == {
        "ranks": {0: {"minIncarnation": 5, "avoidNodes": ["n1"]}, 2: {"cpu": "24"}}
    }


def test_a_role_about_which_nothing_is_said_is_absent() -> None:
    assert role_targets(a_plan({Role.PS: RolePlan()})) == {}
