"""When a training ends, by its speed: right where it is steady, and seldom told anew."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.cluster.completion_estimate import CompletionEstimate, as_time


def told(speeds: list[float], total: int) -> list[float | None]:
    """The estimates, each second, of a training of these steps a second."""
    estimate, done, found = CompletionEstimate(), 0.0, []
    for second, speed in enumerate(speeds):
        found.append(estimate.look(int(done), total, 1000.0 + second))
        done += speed
    return found


@given(speed=st.floats(1, 100), seconds=st.integers(200, 5000))
def test_a_steady_training_is_told_its_end_once_and_within_a_tenth(
    speed: float, seconds: int
) -> None:
    total = int(speed * seconds)
    found = told([speed] * min(seconds - 1, 300), total)
    assert found[:30] == [None] * 30, "nothing is said of half a minute"
    ends = {end for end in found if end is not None}
    assert len(ends) == 1
    [end] = ends
    assert abs(end - 1000 - total / speed) <= 0.1 * seconds + 5


def test_uneven_steps_and_stops_are_in_it() -> None:
    chance = random.Random(3)
    speeds = [chance.choice([0.0, 2.0, 6.0, 12.0]) for _ in range(1500)]
    found = told(speeds, int(sum(speeds)))
    late = [end for end in found[300:1350] if end is not None]
    assert all(abs(end - 2500) <= 0.25 * (2500 - 1300) for end in late)
    assert len(set(late)) < 25


def test_a_slower_training_is_told_anew() -> None:
    found = told([10.0] * 300 + [1.0] * 900, 10_000)
    first, last = found[100], found[-1]
    assert first is not None
    assert last is not None
    assert abs(first - 2000) < 150
    assert abs(last - (1000 + 300 + 7000)) < 900, "after ten minutes the old speed is forgotten"


def test_nothing_is_said_of_what_is_not_known_and_a_model_that_went_back_begins_anew() -> None:
    estimate = CompletionEstimate()
    assert estimate.look(0, 0, 0.0) is None
    for second in range(100):
        said = estimate.look(10 * second, 10_000, float(second))
    assert said is not None
    assert estimate.look(5, 10_000, 101.0) == said, "of the new speed nothing is known yet"
    assert estimate.look(10_000, 10_000, 1000.0) == said
    assert as_time(None) is None
    assert as_time(0.9) == "1970-01-01T00:00:00Z"
