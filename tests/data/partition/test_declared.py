"""Results of a declared function are used only as its proof allows, whatever comes when."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition import declared
from penstock.data.partition.declared import MAX_KINDS, Declared, Kind
from penstock.data.partition.proof import Mode

HERE, THERE = Kind("here", "8"), Kind("there", "8")


def chosen() -> Declared:
    """Recorded and on its way to data workers."""
    state = Declared()
    for _ in range(3):
        state, mode = declared.ask(state, None)
        assert mode is Mode.RECORD
        state = declared.record(state, "s")
    return declared.choose(state, "f")


def run(state: Declared, results: int, kind: Kind = HERE) -> tuple[Declared, Counter[Mode]]:
    modes: Counter[Mode] = Counter()
    for _ in range(results):
        state, mode = declared.ask(state, kind)
        modes[mode] += 1
        if mode is Mode.COMPARE:
            state = declared.compare(state, kind, None)
    return state, modes


def test_results_are_compared_first_and_then_one_in_a_thousand() -> None:
    state, modes = run(chosen(), 10)
    assert modes == {Mode.COMPARE: 10}
    assert state.phase is Phase.ON
    state, modes = run(state, 2000)
    assert modes == {Mode.COMPARE: 2, Mode.PARTITIONED: 1998}


def test_calls_without_a_result_are_the_programs_own_and_no_steps() -> None:
    state = chosen()
    for _ in range(100):
        state, mode = declared.ask(state, None)
        assert mode is Mode.RAW
    assert run(state, 10)[0].phase is Phase.ON


def test_what_was_not_chosen_yet_is_not_used() -> None:
    state, mode = declared.ask(Declared(), HERE)
    assert mode is Mode.RAW
    assert state.phase is Phase.RECORDING


def test_the_first_result_of_each_kind_is_compared() -> None:
    state, _ = run(chosen(), 11)
    state, mode = declared.ask(state, THERE)
    assert mode is Mode.COMPARE
    state = declared.compare(state, THERE, None)
    assert declared.ask(state, THERE)[1] is Mode.PARTITIONED
    assert declared.ask(state, Kind("here", "7"))[1] is Mode.COMPARE


def test_kinds_that_are_not_remembered_are_compared_each_time() -> None:
    state, _ = run(chosen(), 11)
    for number in range(MAX_KINDS + 5):
        state, _ = run(state, 1, Kind("here", str(number)))
    assert len(state.kinds) == MAX_KINDS
    state, modes = run(state, 3, Kind("here", str(MAX_KINDS + 4)))
    assert modes == {Mode.COMPARE: 3}


def test_calls_that_are_not_alike_are_recorded_again_and_then_given_up() -> None:
    state = Declared()
    for number in range(9):
        state, mode = declared.ask(state, None)
        assert mode is Mode.RECORD
        state = declared.record(state, str(number))
    assert state.phase is Phase.FELL_BACK


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["call", "result", "result", "result", "differs", "changed"]),
        st.sampled_from([HERE, THERE]),
    ),
    max_size=60,
)


@given(EVENTS, st.booleans())
@settings(max_examples=150)
def test_nothing_is_used_that_was_not_compared_nor_after_any_difference(
    events: list[tuple[str, Kind]], begun: bool
) -> None:
    state = run(chosen(), 10)[0] if begun else chosen()
    compared: Counter[Kind] = Counter({HERE: 10} if begun else {})
    over = False
    for what, kind in events:
        if what == "changed":
            state, over = declared.give_up(state, "written to"), True
            continue
        state, mode = declared.ask(state, None if what == "call" else kind)
        if over or what == "call":
            assert mode is Mode.RAW
        elif mode is Mode.PARTITIONED:
            assert sum(compared.values()) >= 10
            assert compared[kind]
        else:
            assert mode is Mode.COMPARE
            difference = "a bit" if what == "differs" else None
            state = declared.compare(state, kind, difference)
            over = difference is not None
            compared[kind] += not over
        state.proof.check_invariants()
    assert (state.phase is Phase.FELL_BACK) == over
