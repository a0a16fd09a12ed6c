"""The session of the profiler, whatever the program does meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.throughput.observations.session import (
    Budget,
    Phase,
    Session,
    begin,
    epoch_ended,
    filled,
    taken,
)

SHORT = Budget(least=4, most=10, rounds=3, retained=5, cold=3)


def run(session: Session, batches: Iterable[tuple[float, float]], ready: int = 4) -> Session:
    """Deliver batches: seconds of training before each, and of waiting for it."""
    for trained, waited in batches:
        if session.holds:
            session = filled(session, ready)
        session = taken(session, trained, waited)
    return session


def test_a_program_that_goes_on_is_measured_and_drained() -> None:
    session = begin(4, SHORT)
    phases = []
    for _ in range(100):
        if session.holds:
            session = filled(session, 4)
        phases.append(session.phase)
        session = taken(session, 0.1, 0.2 if session.phase is Phase.NORMAL else 0.0)
    assert session.phase is Phase.DONE
    assert phases[:10] == [Phase.WARM_UP] * 10, "twice the window, and a little"
    assert phases[10:14] == [Phase.NORMAL] * 4, "periods that are alike are soon known"
    assert phases[14:22] == [Phase.DRAIN] * 8
    assert phases[22:35] == [Phase.RETAINED] * 13, "twice the window, and what is asked for"
    assert phases[35:46] == [Phase.COLD] * 11
    assert phases[46:] == [Phase.DONE] * 54
    assert session.periods == pytest.approx((0.3,) * 4)
    assert session.steps == pytest.approx((0.1,) * 8)


def test_figures_that_vary_are_measured_longer() -> None:
    session = run(begin(0, SHORT), [(0.1, 0.0)] * 2 + [(0.1, 0.5), (0.3, 0.0)] * 20)
    assert session.phase is Phase.DONE
    assert len(session.periods) == SHORT.most


def test_ranks_of_a_group_do_the_same_whatever_they_measure() -> None:
    fixed = Budget(least=4, most=10, rounds=3, fixed=True)
    sessions = [begin(4, fixed), begin(4, fixed)]
    for step in range(90):
        assert sessions[0].phase is sessions[1].phase
        for index, one in enumerate(sessions):
            now = filled(one, 4) if one.holds else one
            sessions[index] = taken(now, 0.1 if index else 0.1 + step, 0.0)
    assert sessions[0].phase is Phase.DONE


def test_without_workers_there_is_nothing_to_drain() -> None:
    assert run(begin(0, SHORT), [(0.1, 0.1)] * 20).phase is Phase.DONE


def test_an_epoch_that_ends_in_a_drain_ends_the_round() -> None:
    session = run(begin(2, SHORT), [(0.1, 0.1)] * 11, ready=4)
    assert session.phase is Phase.DRAIN
    session = epoch_ended(session)
    assert session.phase is Phase.FILL
    assert session.round == 1


def test_an_epoch_that_is_about_to_end_is_not_drained() -> None:
    session = run(begin(2, SHORT), [(0.1, 0.1)] * 10)
    assert session.holds
    assert filled(session, 1).round == 1


events = st.lists(
    st.one_of(
        st.tuples(st.just("taken"), st.floats(0, 10) | st.none(), st.floats(0, 10)),
        st.tuples(st.just("filled"), st.integers(0, 8) | st.none()),
        st.tuples(st.just("ended")),
    ),
    max_size=200,
)


@given(st.integers(0, 8), events)
def test_a_session_ends_and_stays_ended_under_any_order_of_events(
    window: int, given_: list[tuple[object, ...]]
) -> None:
    session = begin(window, SHORT)
    for event in given_:
        before = session
        match event:
            case ("taken", trained, waited):
                session = taken(session, trained, waited)  # type: ignore[arg-type]  # as drawn
            case ("filled", ready):
                session = filled(session, ready)  # type: ignore[arg-type]  # as drawn above
            case _:
                session = epoch_ended(session)
        assert session.round >= before.round
        assert not (session.holds and session.defers)
        assert len(session.periods) <= SHORT.most
        assert session.round <= SHORT.rounds
        if before.phase is Phase.DONE:
            assert session == before
    session = run(session, [(0.1, 0.1)] * 200)
    assert session.phase is Phase.DONE


def test_a_loader_too_slow_to_be_filled_is_held_up_once() -> None:
    session = run(begin(2, SHORT), [(0.1, 0.1)] * 200)
    holding = replace(session, phase=Phase.FILL, round=0)
    assert filled(holding, None).phase is Phase.DONE


@pytest.mark.parametrize(("least", "most", "rounds"), [(1, 5, 1), (6, 5, 1), (2, 5, -1)])
def test_a_budget_that_measures_nothing_is_refused(least: int, most: int, rounds: int) -> None:
    with pytest.raises(ValueError, match="2 batches or more"):
        Budget(least, most, rounds)


def test_an_epoch_that_ends_while_workers_keep_their_memory_ends_nothing() -> None:
    session = run(begin(4, SHORT), [(0.1, 0.2)] * 10 + [(0.1, 0.2)] * 12)
    assert session.phase is Phase.RETAINED
    assert epoch_ended(session) == session
    session = run(session, [(0.1, 0.1)] * session.left)
    assert session.phase is Phase.COLD
    assert epoch_ended(session) == session
    assert run(session, [(0.1, 0.1)] * session.left).phase is Phase.DONE


def test_files_are_dropped_for_programs_without_workers_too_unless_nobody_may() -> None:
    session = run(begin(0, SHORT), [(0.1, 0.1)] * 6)
    assert (session.phase, session.left) == (Phase.COLD, 3)
    none = replace(SHORT, cold=0)
    assert run(begin(0, none), [(0.1, 0.1)] * 6).phase is Phase.DONE


@pytest.mark.parametrize(("window", "retained"), [(0, 5), (4, 0)])
def test_memory_is_kept_for_no_batch_where_nobody_would_keep_it(window: int, retained: int) -> None:
    session = begin(window, Budget(least=4, most=4, rounds=0, retained=retained, cold=0))
    assert run(session, [(0.1, 0.2)] * 14).phase is Phase.DONE
