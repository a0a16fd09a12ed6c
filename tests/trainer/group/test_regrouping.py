"""How long a worker pauses between groups that break, and when it gives up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.group.regrouping import MAX_BREAKS, MAX_PAUSE_SECONDS, Regrouping

EVENTS = st.lists(st.sampled_from(["broken", "committed"]), max_size=60)


def broken(times: int) -> Regrouping:
    state = Regrouping()
    for number in range(times):
        state = state.broken(f"reason {number}")
    return state


def test_the_first_group_that_breaks_is_formed_anew_at_once() -> None:
    assert broken(1).pause_seconds(1.0) == 0


def test_the_pause_doubles_up_to_its_bound() -> None:
    pauses = [broken(times).pause_seconds(1.0) for times in range(2, 10)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_jitter_takes_no_more_than_half_and_the_bound_holds(times: int, dice: float) -> None:
    state = Regrouping(times)
    assert state.pause_seconds(1) / 2 <= state.pause_seconds(dice) <= state.pause_seconds(1)
    assert state.pause_seconds(dice) <= MAX_PAUSE_SECONDS


@given(EVENTS)
def test_it_gives_up_after_breaks_in_a_row_alone(events: list[str]) -> None:
    state, row = Regrouping(), 0
    for event in events:
        state = state.broken("why") if event == "broken" else state.committed()
        row = row + 1 if event == "broken" else 0
        assert state.breaks == row
        assert state.exhausted == (row >= MAX_BREAKS)


def test_who_gives_up_names_the_newest_reason() -> None:
    words = broken(MAX_BREAKS).resignation()
    assert f"{MAX_BREAKS} times in a row" in words
    assert f"reason {MAX_BREAKS - 1}:" in words
