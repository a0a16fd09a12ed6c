"""One planted hang, with the processes that a job has."""

from __future__ import annotations

import pytest

from benchmarks.hang import alarms, hang


@pytest.mark.slow
def test_a_lock_in_one_rank_is_named_with_its_function() -> None:
    found = hang("lock", rank=1, step=60, seed=1)
    assert (found.named, found.right_place) == ((1,), True), found


@pytest.mark.slow
def test_the_first_evaluation_of_short_steps_raises_no_alarm() -> None:
    # More than a second each ten steps: it knows of more than the five pauses that it has to know.
    assert alarms(0, seed=1, every=60) == 0, "15 s after 60 steps of at most 3 s"
