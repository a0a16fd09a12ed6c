"""When members measure between steps: within the share of the time, and never in two pairs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.nodecheck.schedule import WORST_SECONDS, Order, Said, Schedule, pairs

LISTENS = Said("host:1")


def steps(schedule: Schedule, members: int, seconds: float, step_seconds: float) -> list[float]:
    """When members of a group were told to measure; each round takes them no time."""
    told, now, said = [], 0.0, [Said()] * members
    while now < seconds:
        now += step_seconds
        order = schedule.decide(said, now, calm=True)
        said = [Said()] * members
        if order is not None and order.pairs:
            told.append(now)
            said = [Said(spent=0.1)] * members
        elif order is not None:
            said = [LISTENS] * members
    return told


def test_the_first_round_waits_for_as_long_as_a_slow_one_may_take_of_the_share() -> None:
    [first, second, *_] = steps(Schedule(0.01, 0.0), 3, 150, 0.5)
    assert first == pytest.approx(WORST_SECONDS / 0.01, abs=1.5)
    assert second - first == pytest.approx(0.1 / 0.01, abs=1.5), "the cost is known by then"


def test_a_group_of_one_has_nobody_to_compare_with() -> None:
    assert steps(Schedule(0.1, 0.0), 1, 1000, 1.0) == []


def test_nobody_is_told_to_measure_while_a_member_is_about_to_leave() -> None:
    schedule = Schedule(0.1, 0.0)
    assert schedule.decide([LISTENS] * 2, 100.0, calm=False) is None
    assert schedule.decide([LISTENS] * 2, 101.0, calm=True) == Order()
    assert schedule.decide([LISTENS] * 2, 102.0, calm=False) is None
    assert schedule.decide([LISTENS] * 2, 103.0, calm=True) == Order(), "they listen anew"


def test_members_that_do_not_listen_are_left_out() -> None:
    schedule = Schedule(0.1, 0.0)
    schedule.decide([Said()] * 4, 100.0, calm=True)
    order = schedule.decide([LISTENS, Said(), LISTENS, LISTENS], 101.0, calm=True)
    assert order is not None
    assert {one for one, _ in order.pairs} == {0, 2, 3}
    assert 1 not in {other for _, other in order.pairs}


def test_two_members_at_least_have_to_listen() -> None:
    schedule = Schedule(0.1, 0.0)
    schedule.decide([Said()] * 3, 100.0, calm=True)
    assert schedule.decide([LISTENS, Said(), Said()], 101.0, calm=True) is None
    assert schedule.decide([LISTENS] * 3, 102.0, calm=True) is None, "it is asked again later"


@given(
    st.floats(0.005, 0.1),
    st.lists(st.floats(0.001, 3.0), min_size=1, max_size=12),
    st.floats(0.5, 20.0),
)
def test_rounds_take_no_more_than_their_share(
    share: float, costs: list[float], step_seconds: float
) -> None:
    schedule = Schedule(share, 0.0)
    now, said, left = 0.0, [Said(), Said()], list(costs)
    rounds: list[tuple[float, float]] = []
    while left and now < 4000 / share:
        now += step_seconds
        order = schedule.decide(said, now, calm=True)
        said = [Said(), Said()]
        if order is not None and order.pairs:
            cost = left.pop()
            rounds.append((now, cost))
            now += cost
            said = [Said(spent=cost), Said(spent=cost / 2)]
        elif order is not None:
            said = [LISTENS, LISTENS]
    assert rounds, "none was ever told"
    for (began, cost), (following, _) in pairwise(rounds):
        assert cost <= share * (following - began) * (1 + 1e-9)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=33, unique=True), st.integers(0, 200))
def test_everybody_is_in_one_pair_and_meets_all_others_in_turn(
    members: list[int], number: int
) -> None:
    rounds = len(members) - 1 + len(members) % 2
    met: dict[int, list[int | None]] = {one: [] for one in members}
    for turn in range(number, number + rounds):
        found = dict(pairs(members, turn))
        assert set(found) == set(members)
        for one, other in found.items():
            assert other is None or found[other] == one != other
            met[one].append(other)
    for one, others in met.items():
        assert {other for other in others if other is not None} == set(members) - {one}
        assert len(others) == len(set(others)), "nobody is met twice before all were"
