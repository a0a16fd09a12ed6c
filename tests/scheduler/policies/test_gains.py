from __future__ import annotations

import math

import pytest

from penstock.scheduler.policies.gains import GainEstimate


def test_before_a_change_was_measured_throughput_is_taken_as_linear() -> None:
    assert GainEstimate(8000, 0.4).next_gain(4000) == pytest.approx(0.2)
    assert GainEstimate().next_gain(4000) == 0


def test_the_last_step_says_what_the_next_one_brings() -> None:
    estimate = GainEstimate().measured(8000, 0.4).measured(16_000, 0.6)
    assert estimate.next_gain(8000) == pytest.approx(0.2)


def test_a_loss_is_no_negative_gain() -> None:
    assert GainEstimate(8000, 0.4).measured(16_000, 0.3).next_gain(8000) == 0


def test_without_a_change_the_gain_stays() -> None:
    estimate = GainEstimate().measured(8000, 0.4).measured(8000, 0.5)
    assert estimate.next_gain(8000) == pytest.approx(0.4)
    assert estimate.throughput == 0.5


@pytest.mark.parametrize("throughput", [math.nan, math.inf, -1.0])
def test_nonsense_changes_nothing(throughput: float) -> None:
    estimate = GainEstimate(8000, 0.4)
    assert estimate.measured(16_000, throughput) == estimate
