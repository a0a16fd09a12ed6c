"""How the rescale benchmark compares two loss curves."""

from __future__ import annotations

import pytest

from benchmarks.elastic.steps import Committed, compare, stall_within


def curve(*losses: float) -> list[Committed]:
    return [Committed(step, float(step), 1, loss) for step, loss in enumerate(losses)]


def test_equal_curves_are_not_apart() -> None:
    found = compare(curve(2.0, 1.0), curve(2.0, 1.0))
    assert found["largest_loss_difference"] == found["largest_loss_difference_of_10_steps"] == 0
    assert found["steps_compared"] == 2


def test_a_difference_counts_as_a_part_of_the_first_loss() -> None:
    found = compare(curve(2.0, 1.5), curve(2.0, 1.0))
    assert found["largest_loss_difference"] == pytest.approx(0.25)
    assert found["largest_loss_difference_of_10_steps"] == pytest.approx(0.125)


def test_noise_round_the_same_curve_averages_out() -> None:
    found = compare(curve(2.0, *[1.5, 0.5] * 10), curve(2.0, *[1.0] * 20))
    assert found["largest_loss_difference"] == pytest.approx(0.25)
    assert found["largest_loss_difference_of_10_steps"] < 0.03


def test_curves_that_share_no_step_are_endlessly_apart() -> None:
    assert compare(curve(1.0), [])["largest_loss_difference"] == float("inf")


def test_a_stall_belongs_to_the_fault_in_whose_time_its_middle_lies() -> None:
    steps = [Committed(number, at, 2, 1.0) for number, at in enumerate([0.0, 1.0, 2.0, 12.0, 13.0])]
    assert stall_within(steps, 0.5, 2.5) == 1.0, "the second fault struck after it"
    assert stall_within(steps, 2.5, 12.5) == 10.0
    assert stall_within(steps, 20.0, 30.0) == 0.0
