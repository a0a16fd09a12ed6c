"""A slow pod is relieved or moved; a busy one is neither."""

from __future__ import annotations

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.straggler import StragglerParams, plan
from penstock.brain.planning import AppliedPlan, Limits, Plan, PlanReason, RankPlan, RolePlan
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, ps_sample, run_of


def ask(*more: AppliedPlan, **fields: object) -> Plan | None:
    defaults: dict[str, object] = {
        "speed": 100.0,
        "workers": 8,
        "worker_cores": 3.0,
        "worker_used": 2.0,
        "servers": [(16.0, 8.0)] * 4,
    }
    samples = run_of(6, **(defaults | fields))
    plans = (in_force_plan(8, 3, 4, 16, stage=Stage.OPTIMIZE), *more)
    return plan(ps_history(samples, *plans), ps_job(), Limits(), StragglerParams())


def test_equal_pods_are_left_alone() -> None:
    assert ask() is None


def test_a_somewhat_slow_worker_gets_smaller_shards_and_no_new_pod() -> None:
    made = ask(worker_seconds={3: 0.08 * 1.6})
    assert made is not None
    assert made.roles == {}
    assert made.shard_weights == {3: 0.62}


def test_a_very_slow_worker_is_moved() -> None:
    made = ask(worker_seconds={3: 0.08 * 4})
    assert made is not None
    assert made.reason == PlanReason.SLOW_WORKER
    assert made.roles[Role.WORKER].ranks == {3: RankPlan(replace=True, avoid_nodes=("w3",))}
    assert made.shard_weights == {3: 0.25}


def test_a_slow_server_that_is_no_busier_is_moved() -> None:
    made = ask(servers=[(16.0, 4.0)] * 4, server_seconds={1: 0.08})
    assert made is not None
    assert made.reason == PlanReason.SLOW_SERVER
    assert made.roles[Role.PS].ranks == {1: RankPlan(replace=True, avoid_nodes=("s1",))}


def test_a_server_is_not_slow_for_being_larger_than_its_work() -> None:
    # Four do the same in the same time; where CPU is a quota, more of it makes none faster.
    assert ask(servers=[(8.0, 2.0), (4.0, 2.0), (4.0, 2.0), (4.0, 2.0)]) is None


def test_a_slow_server_is_slow_whatever_its_size() -> None:
    servers = [(8.0, 2.0), (4.0, 2.0), (4.0, 2.0), (4.0, 2.0)]
    made = ask(servers=servers, server_seconds={0: 0.08})
    assert made is not None
    assert list(made.roles[Role.PS].ranks) == [0]


def test_a_hot_server_is_not_slow() -> None:
    servers = [(16.0, 8.0), (16.0, 15.5), (16.0, 8.0), (16.0, 8.0)]
    assert ask(servers=servers, server_seconds={1: 0.3}) is None


def test_a_server_at_which_updates_queue_is_not_slow() -> None:
    # Four times the work of the others: its updates wait for each other, on any machine.
    servers = [(8.0, 0.7), (8.0, 0.7), (8.0, 0.7), (8.0, 0.7), (8.0, 0.7), (8.0, 3.1)]
    seconds = {**dict.fromkeys(range(5), 0.00045), 5: 0.0030}
    assert ask(servers=servers, server_seconds=seconds) is None
    made = ask(servers=servers, server_seconds=seconds | {5: 0.0060})
    assert made is not None, "that much is not from the queue"


def test_a_slow_server_that_nobody_waits_for_stays() -> None:
    servers = [(8.0, 7.9), (8.0, 1.0), (8.0, 1.0), (8.0, 1.0), (8.0, 1.0), (8.0, 1.0)]
    seconds = {0: 1.9, **dict.fromkeys(range(1, 5), 0.001), 5: 0.01}
    assert ask(servers=servers, server_seconds=seconds) is None, "the first is overloaded"
    made = ask(servers=servers, server_seconds=seconds | {0: 0.008})
    assert made is not None
    assert list(made.roles[Role.PS].ranks) == [5]


def test_two_workers_are_not_told_apart() -> None:
    assert ask(workers=2, worker_seconds={1: 10.0}) is None


def test_a_pod_is_not_replaced_twice_in_a_row() -> None:
    moved = AppliedPlan(
        applied_seconds=NOW - 300,
        settled_seconds=NOW - 150,
        stage=Stage.ADJUST,
        roles={Role.WORKER: RolePlan(ranks={3: RankPlan(replace=True)})},
    )
    made = ask(moved, worker_seconds={3: 0.08 * 4})
    assert made is not None
    assert made.roles == {}, "only the shards shrink"


def replaced(*before_seconds: float) -> list[AppliedPlan]:
    return [
        AppliedPlan(
            applied_seconds=NOW - before,
            settled_seconds=NOW - before + 30,
            stage=Stage.ADJUST,
            roles={Role.PS: RolePlan(ranks={1: RankPlan(replace=True)})},
        )
        for before in before_seconds
    ]


def test_a_pod_that_is_slow_everywhere_is_replaced_ever_more_rarely() -> None:
    slow = {"servers": [(16.0, 4.0)] * 4, "server_seconds": {1: 0.08}}
    assert ask(*replaced(700), **slow) is not None
    assert ask(*replaced(1500, 700), **slow) is None
    assert ask(*replaced(2100, 1300), **slow) is not None


def test_the_same_weights_are_not_planned_again() -> None:
    weighed = AppliedPlan(
        applied_seconds=NOW - 100,
        settled_seconds=NOW - 100,
        stage=Stage.ADJUST,
        roles={},
        shard_weights={3: 0.62},
    )
    assert ask(weighed, worker_seconds={3: 0.08 * 1.6}) is None


def test_one_noisy_sample_does_not_hide_a_slow_server() -> None:
    made = [
        ps_sample(
            NOW - 15 * (2 - index),
            speed=50.0,
            workers=3,
            worker_cores=3.0,
            worker_used=1.5,
            servers=[(1.5, 0.38), (1.5, 0.34), (1.5, 0.33), (1.5, 0.34)],
            server_seconds=dict(enumerate(times)),
        )
        for index, times in enumerate(
            [(1.7, 0.57, 0.58, 0.53), (1.36, 0.52, 0.54, 0.51), (1.19, 0.40, 0.72, 0.44)]
        )
    ]
    plans = (in_force_plan(3, 3, 4, 1.5, stage=Stage.OPTIMIZE),)
    found = plan(ps_history(tuple(made), *plans), ps_job(), Limits(), StragglerParams())
    assert found is not None
    assert list(found.roles[Role.PS].ranks) == [0]


def of_four(*samples: tuple[tuple[float, float], ...]) -> Plan | None:
    """Of four servers, the second is of twice the size; each sample has (milli-cores, ms)."""
    made = [
        ps_sample(
            NOW - 3 * (len(samples) - 1 - index),
            speed=21.0,
            workers=3,
            worker_cores=0.3,
            worker_used=0.1,
            servers=[
                (0.2 if rank == 1 else 0.1, used / 1000) for rank, (used, _) in enumerate(rows)
            ],
            server_seconds={rank: took / 1000 for rank, (_, took) in enumerate(rows)},
        )
        for index, rows in enumerate(samples)
    ]
    plans = (in_force_plan(3, 1, 4, 1, stage=Stage.OPTIMIZE),)
    return plan(ps_history(tuple(made), *plans), ps_job(), Limits(), StragglerParams())


WELL = ((21, 0.60), (33, 0.85), (32, 0.71), (26, 0.70))
STILL = ((24, 0.78), (19, 0.83), (19, 0.78), (27, 2.50))
STILL_AGAIN = ((24, 0.77), (20, 0.70), (21, 0.71), (25, 2.39))
NOT_AT_WORK = ((23, 0.58), (23, 0.79), (22, 0.73), (24, 0.78))
"""Measured: the fourth server has a quarter of its speed, but in the first."""


def test_one_that_stands_still_is_not_caught_at_work_in_each_sample() -> None:
    for samples in (
        (STILL, STILL_AGAIN, NOT_AT_WORK),
        (NOT_AT_WORK, STILL, STILL_AGAIN),
        (STILL, NOT_AT_WORK, STILL_AGAIN),
    ):
        made = of_four(*samples)
        assert made is not None
        assert list(made.roles[Role.PS].ranks) == [3]


def test_once_is_noise() -> None:
    assert of_four(WELL, STILL, WELL) is None
    assert of_four(NOT_AT_WORK, NOT_AT_WORK, STILL) is None


def test_a_server_that_has_more_to_do_is_not_slow() -> None:
    more = ((21, 0.60), (22, 0.60), (45, 1.35), (21, 0.60))
    assert of_four(more, more, more) is None
