"""Whether a partition is worth it: beside a step written down plainly, for any measurements."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.partition.errors import PartitionError
from penstock.data.partition.worth import (
    BEGIN_GAIN,
    KEEP_GAIN,
    NONE,
    WINDOWS,
    Choice,
    Means,
    Way,
    decide,
    step_seconds,
)

FIGURES = st.floats(0, 100, allow_nan=False)
NO_MEANS = Means((), ())


def ways(none: float, **others: float) -> list[Way]:
    """Nothing moves, and others, of which only the training takes time."""
    return [Way(NONE, none), *(Way(name, seconds) for name, seconds in others.items())]


def after(choice: Choice, windows: int, none: float, **others: float) -> Choice:
    for _ in range(windows):
        choice = decide(choice, ways(none, **others), NO_MEANS)
    return choice


@given(
    training=FIGURES,
    stages=st.lists(st.tuples(FIGURES, FIGURES), max_size=3),
    links=st.lists(st.tuples(st.integers(0, 1 << 40), FIGURES), max_size=3),
)
@settings(max_examples=60)
def test_a_step_takes_as_long_as_the_slowest_of_its_parts(
    training: float, stages: list[tuple[float, float]], links: list[tuple[int, float]]
) -> None:
    way = Way("cut", training, tuple(one for one, _ in stages), tuple(size for size, _ in links))
    means = Means(tuple(many for _, many in stages), tuple(of for _, of in links))
    parts = [training]
    for work, there in [*stages, *links]:
        if work:
            parts.append(work / there if there else math.inf)
    assert step_seconds(way, means) == max(parts)


def test_a_stage_without_workers_never_ends() -> None:
    way = Way("cut", 1.0, (0.5,), (10,))
    assert step_seconds(way, Means((0.0,), (1.0,))) == math.inf
    assert step_seconds(way, Means((1.0,), (0.0,))) == math.inf


@pytest.mark.parametrize(
    ("way", "means", "said"),
    [
        (Way("cut", 1.0, (1.0,)), NO_MEANS, "stage_seconds: 1; there are 0"),
        (Way("cut", 1.0, (), (1, 2)), Means((), (1.0,)), "sent_bytes: 2; there are 1"),
        (Way("cut", -1.0), NO_MEANS, "all figures must be numbers"),
        (Way("cut", math.nan), NO_MEANS, "all figures must be numbers"),
        (Way("cut", 1.0, (math.inf,)), Means((1.0,), ()), "all figures must be numbers"),
        (Way("cut", 1.0, (1.0,)), Means((-1.0,), ()), "all figures must be numbers"),
    ],
)
def test_figures_that_cannot_be_are_refused(way: Way, means: Means, said: str) -> None:
    with pytest.raises(PartitionError, match=said):
        step_seconds(way, means)


@pytest.mark.parametrize("given_ways", [[], [Way("cut", 1.0)], [Way(NONE, 1.0), Way(NONE, 2.0)]])
def test_nothing_moves_has_to_be_one_of_the_ways_once(given_ways: list[Way]) -> None:
    with pytest.raises(PartitionError, match="each once"):
        decide(Choice(), given_ways, NO_MEANS)


def test_a_faster_way_is_taken_after_so_many_windows_in_a_row() -> None:
    choice = after(Choice(), WINDOWS - 1, 1.0, cut=0.5)
    assert choice.way == NONE
    assert f"in {WINDOWS - 1} of {WINDOWS} windows" in choice.why
    assert after(choice, 1, 1.0, cut=0.5).way == "cut"
    interrupted = after(after(choice, 1, 1.0, cut=0.99), WINDOWS - 1, 1.0, cut=0.5)
    assert interrupted.way == NONE, "the row begins anew"


def test_a_row_is_of_one_way() -> None:
    choice = after(Choice(), WINDOWS - 1, 1.0, cut=0.5)
    choice = after(choice, 1, 1.0, cut=0.9, other=0.4)
    assert choice.way == NONE
    assert (choice.better, choice.windows) == ("other", 1)


def test_what_gains_hardly_anything_is_given_up_in_time_and_what_costs_at_once() -> None:
    choice = after(Choice(), WINDOWS, 1.0, cut=0.5)
    assert after(choice, WINDOWS - 1, 1.0, cut=0.98).way == "cut"
    assert after(choice, WINDOWS, 1.0, cut=0.98).way == NONE
    slower = after(choice, 1, 1.0, cut=1.01)
    assert slower.way == NONE
    assert "slower than none" in slower.why


def test_a_way_that_is_not_there_any_more_is_given_up() -> None:
    choice = after(Choice(), WINDOWS, 1.0, cut=0.5)
    assert decide(choice, ways(1.0), NO_MEANS).way == NONE


def test_one_that_saves_all_time_is_the_better_one() -> None:
    assert after(Choice(), WINDOWS, 1.0, cut=0.0).way == "cut"
    assert after(Choice(), WINDOWS, 0.0, cut=0.0).way == NONE


@given(st.lists(st.floats(0.2, 3.0), min_size=1, max_size=40))
@settings(max_examples=60)
def test_nothing_is_changed_between_the_two_gains_nor_is_a_slower_way_ever_kept(
    speeds: list[float],
) -> None:
    """Of one cut whose speed, as a multiple of that without, is what was measured."""
    choice = Choice()
    for place, speed in enumerate(speeds):
        before, choice = choice, decide(choice, ways(1.0, cut=1 / speed), NO_MEANS)
        last = speeds[max(0, place + 1 - WINDOWS) : place + 1]
        if (before.way, choice.way) == (NONE, "cut"):
            assert len(last) == WINDOWS
            assert min(last) >= (1 + BEGIN_GAIN) * (1 - 1e-9)
        if (before.way, choice.way) == ("cut", NONE):
            assert speed < 1 or max(last) < (1 + KEEP_GAIN) * (1 + 1e-9)
        if speed < 1:
            assert choice.way == NONE
