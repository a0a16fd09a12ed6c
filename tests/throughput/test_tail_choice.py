"""Who makes the ends of samples: where they hold the program up, its workers, if they keep up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.throughput.decision.tail_choice import (
    TailChoice,
    TailPhase,
    TailWindow,
    watch_tail,
)

HEAVY = TailWindow(seconds=10.0, taken=50, tail_seconds=6.0, workers=2)
"""Five batches a second; 120 of the 200 ms of each go into its tail."""


def test_a_tail_that_holds_the_program_up_goes_to_its_workers_and_stays_if_that_helps() -> None:
    choice = watch_tail(TailChoice(), HEAVY)
    assert (choice.phase, choice.in_workers) == (TailPhase.CHANGING, True)
    assert choice.promised == pytest.approx(1 / 0.08)
    trying = watch_tail(choice, HEAVY)
    assert (trying.phase, trying.why) == (TailPhase.TRYING, "")
    assert watch_tail(trying, replace(HEAVY, taken=110, tail_seconds=0.0)).in_workers
    back = watch_tail(trying, replace(HEAVY, taken=60, tail_seconds=0.0))
    assert (back.phase, back.in_workers) == (TailPhase.DONE, False)
    assert back.why.startswith("the program makes the ends of samples again: 6 batches/s")
    assert watch_tail(back, HEAVY).in_workers is False


def test_it_stays_where_it_is_short_or_nobody_could_make_it_sooner() -> None:
    for window in (
        replace(HEAVY, tail_seconds=1.0),
        replace(HEAVY, workers=0),
        replace(HEAVY, workers=1, tail_seconds=9.9),  # the worker would take as long
        replace(HEAVY, seconds=1.0),
        replace(HEAVY, taken=3),
    ):
        assert watch_tail(TailChoice(), window).phase is TailPhase.WATCHING


@given(st.floats(4, 60), st.integers(12, 10_000), st.floats(0, 1), st.integers(0, 64))
def test_every_window_has_an_answer(seconds: float, taken: int, share: float, workers: int) -> None:
    window = TailWindow(seconds, taken, share * seconds, workers)
    choice = watch_tail(TailChoice(), window)
    assert not choice.in_workers or choice.promised >= 1.1 * choice.before
    for _ in range(2):
        choice = watch_tail(choice, window)
    assert choice.phase in (TailPhase.WATCHING, TailPhase.DONE)
    assert not choice.in_workers, "nothing has become faster"
