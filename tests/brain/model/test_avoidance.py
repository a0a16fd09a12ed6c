"""For how long bad nodes are avoided, and which are avoided at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.brain.model.avoidance import (
    AVOID,
    CLEAR,
    FAILING,
    LONGEST_SECONDS,
    MOST_SHARE,
    Standing,
    avoid_for,
    avoided,
)

NOW = 1000.0
STANDINGS = st.lists(
    st.builds(
        Standing,
        name=st.text("abcdef", min_size=1, max_size=6),
        verdict=st.sampled_from(["Slow", FAILING]),
        ratio=st.floats(1, 100),
        avoid_until=st.none() | st.floats(0, 2 * NOW),
        override=st.sampled_from(["", AVOID, CLEAR]),
        override_until=st.none() | st.floats(0, 2 * NOW),
    ),
    unique_by=lambda one: one.name,
    max_size=30,
)


def test_each_time_in_a_row_doubles_the_time_up_to_a_week() -> None:
    assert [avoid_for(times) for times in (1, 2, 3)] == [3600.0, 7200.0, 14_400.0]
    assert avoid_for(10_000) == LONGEST_SECONDS


@given(STANDINGS, st.integers(0, 1000))
def test_checks_alone_take_a_tenth_at_most_and_a_person_counts_more(
    standings: list[Standing], nodes: int
) -> None:
    found = avoided(standings, nodes, NOW)
    by_name = {one.name: one for one in standings}
    assert len(found) == len(set(found))
    words = {name: one.word(NOW) for name, one in by_name.items()}
    assert {name for name, word in words.items() if word == AVOID} <= set(found)
    assert not any(words[name] == CLEAR for name in found)
    alone = [name for name in found if not words[name]]
    assert len(alone) <= max(1, nodes * MOST_SHARE)
    assert all(by_name[name].found_bad(NOW) for name in alone)


def test_the_worst_are_taken_first_and_the_expired_not_at_all() -> None:
    later = NOW + 1
    standings = [
        Standing("slow", "Slow", 2.0, later),
        Standing("slower", "Slow", 9.0, later),
        Standing("broken", FAILING, 1.0, later),
        Standing("repaired", FAILING, 1.0, NOW),
    ]
    assert avoided(standings, 20, NOW) == ["broken", "slower"]
    assert avoided(standings, 400, NOW) == ["broken", "slower", "slow"]
