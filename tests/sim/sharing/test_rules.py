"""Rules of sharing on simulated groups: what each makes, and that none is below the bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.sharing.experiment import goals_of, group_of, row_of
from penstock.sim.sharing.rules import alone, bound, free, memo, owed, sliding, turns
from penstock.sim.sharing.world import Group, World

SMALL = {"tiles": 40, "epochs": 2, "window": 8}


def test_jobs_of_one_speed_need_one_dataset_by_any_rule_but_alone() -> None:
    group = Group(4, **SMALL)
    assert alone(group).made == 4
    assert [rule(group).made for rule in (memo, owed, sliding, free)] == [1, 1, 1, 1]
    assert bound(group) == 1


def test_a_sliding_window_loses_what_a_slow_job_is_late_for_and_free_order_does_not() -> None:
    group = Group(4, **SMALL, speeds=0.5)
    assert sliding(group).lost > 0.05
    ours = free(group)
    assert (ours.lost, ours.repeated) == (0, 0)
    assert ours.made < memo(group).made


def test_the_designs_figures_come_out_again() -> None:
    row = row_of(8, "within 30 %", seed=1)
    assert (round(row.memo, 2), round(row.owed, 2), round(row.sliding, 2)) == (5.09, 2.45, 1.23)
    assert row.sliding_lost == pytest.approx(0.09, abs=0.005)
    assert all(goal.ok for goal in goals_of([row])), goals_of([row])


def test_turns_come_in_order_of_time_and_each_job_has_all() -> None:
    order = list(turns(Group(3, tiles=10, epochs=1, speeds=0.5)))
    assert sorted(order) == sorted([0, 1, 2] * 10)
    assert order.index(0) == 0
    assert order[-1] != 0, "the first is the fastest"


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.integers(1, 5),
    window=st.integers(2, 20),
    workers=st.integers(1, 3),
    speeds=st.sampled_from((0.0, 0.1, 0.6)),
    joins=st.sampled_from((0.0, 0.7)),
    delay=st.sampled_from((0.0, 0.05)),
    ahead=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_whatever_the_group_nothing_is_lost_and_nobody_makes_less_than_the_bound(
    jobs: int,
    window: int,
    workers: int,
    speeds: float,
    joins: float,
    delay: float,
    ahead: int,
    seed: int,
) -> None:
    group = Group(
        jobs,
        tiles=30,
        epochs=2,
        window=window,
        workers=workers,
        speeds=speeds,
        joins=joins,
        make_seconds=delay,
        delay_seconds=delay,
        ahead=ahead,
        seed=seed,
    )
    found = World(group).run()
    assert (found.lost, found.repeated) == (0, 0)
    assert found.made <= jobs
    if not delay:  # who waits is slower than the bound takes him for
        # A job has ``ahead`` tiles of its own beside the window, and moments are whole tiles.
        slack = (ahead + 1) * (jobs + 1) / (group.tiles * group.epochs)
        assert found.made >= bound(group) - slack
        assert sliding(group).made >= bound(group) - slack


def test_the_same_seed_gives_the_same_group() -> None:
    group = Group(4, **SMALL, workers=2, speeds=0.3, joins=1.0, seed=5)
    assert World(group).run() == World(group).run()


def test_groups_of_many_jobs_have_a_larger_window() -> None:
    assert group_of(8, "same speed", 1).window == 20
    assert group_of(16, "same speed", 1).window == 40
    with pytest.raises(KeyError):
        group_of(8, "no such kind", 1)
