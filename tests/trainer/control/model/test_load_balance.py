"""Slots of a step are divided so that all members finish together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.control.model.load_balance import by_speed, even, improved, step_seconds

SPEEDS = st.lists(st.floats(0.01, 10), min_size=1, max_size=8)


@given(st.integers(0, 64), st.integers(1, 16))
def test_even_shares_differ_by_one_at_most(slots: int, members: int) -> None:
    shares = even(slots, members)
    assert sum(shares) == slots
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 40), SPEEDS)
def test_shares_by_speed_cover_the_step_and_no_other_division_is_faster_by_moving_one_slot(
    slots: int, seconds: list[float]
) -> None:
    shares = by_speed(slots, seconds)
    assert sum(shares) == slots
    best = step_seconds(shares, seconds)
    for giver in range(len(seconds)):
        for taker in range(len(seconds)):
            if shares[giver] > 1:
                moved = list(shares)
                moved[giver] -= 1
                moved[taker] += 1
                assert step_seconds(moved, seconds) >= best - 1e-9


def test_nobody_is_left_without_a_slot_or_its_speed_would_never_be_measured_again() -> None:
    assert by_speed(12, [1.0, 1.0, 1.0, 100.0]) == (4, 4, 3, 1)
    assert by_speed(2, [5.0, 1.0, 1.0]) == (0, 1, 1)


def test_a_member_at_a_quarter_of_the_speed_gets_a_quarter() -> None:
    assert by_speed(13, [1.0, 1.0, 1.0, 4.0]) == (4, 4, 4, 1)


def test_an_unmeasured_member_counts_as_an_average_one() -> None:
    assert by_speed(12, [None, None, None]) == (4, 4, 4)
    assert by_speed(12, [1.0, None, 1.0]) == (4, 4, 4)


@pytest.mark.parametrize("seconds", [[1.0, 1.04, 1.0, 0.97], [1.0, None, 1.0, 4.0]])
def test_noise_and_missing_measurements_change_nothing(seconds: list[float | None]) -> None:
    assert improved(12, (3, 3, 3, 3), seconds) is None


def test_a_worthwhile_change_is_made() -> None:
    better = improved(12, (3, 3, 3, 3), [1.0, 1.0, 1.0, 4.0])
    assert better is not None
    assert sum(better) == 12
    assert better[3] == 1
