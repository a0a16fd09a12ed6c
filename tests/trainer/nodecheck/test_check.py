"""Rounds of pairs: what they promise of any machines, and what they say of planted ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.trainer.nodecheck.check import (
    MOST_ROUNDS,
    Check,
    Finding,
    Measurement,
    Verdict,
    findings,
    next_round,
    votes_needed,
)
from penstock.trainer.nodecheck.outliers import Speed, usual

SPEEDS = {Speed.COMPUTE: 100.0, Speed.MEMORY: 10.0}


def run(
    hardware: Mapping[str, str],
    slow: Mapping[str, tuple[Speed, float]] | None = None,
    failing: frozenset[str] = frozenset(),
    base: Mapping[str, float] | None = None,
) -> Check:
    """A whole check of machines that are always the same."""
    slow, base = slow or {}, base or {}
    check = Check(hardware)

    def reached(name: str, what: Speed, speed: float) -> float:
        kind, factor = slow.get(name, (None, 1.0))
        return speed * base.get(hardware[name], 1.0) * (factor if kind is what else 1.0)

    while (pairs := next_round(check)) is not None:
        measured = []
        for pair in pairs:
            failed = bool(failing.intersection(pair))
            ends = [name for name in pair if name]
            link = min(reached(name, Speed.LINK, 1.0) for name in ends)
            for name, partner in zip(ends, reversed(ends), strict=True):
                speeds = {what: reached(name, what, speed) for what, speed in SPEEDS.items()}
                alone = len(ends) == 1
                if not alone and not failed:
                    speeds[Speed.LINK] = link
                other = "" if alone else partner
                measured.append(Measurement(name, other, speeds, failed and not alone))
        check = check.add(measured)
    return check


def bad(check: Check) -> dict[str, Finding]:
    kinds = (Verdict.SLOW, Verdict.FAILING)
    return {name: found for name, found in findings(check).items() if found.verdict in kinds}


def machines(count: int, hardware: str = "") -> dict[str, str]:
    return {f"{hardware}n{number:03}": hardware for number in range(count)}


def test_equal_machines_are_good_after_two_rounds() -> None:
    check = run(machines(16))
    assert len(check.rounds) == 2
    assert {found.verdict for found in findings(check).values()} == {Verdict.GOOD}


@pytest.mark.parametrize("what", list(Speed))
def test_a_slow_machine_is_named_with_what_is_slow(what: Speed) -> None:
    found = bad(run(machines(9), {"n004": (what, 0.25)}))
    assert found == {"n004": Finding(Verdict.SLOW, what, pytest.approx(4.0))}


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("factor", [0.01, 0.3])
def test_the_one_slow_link_of_a_few_is_named_whoever_it_is_and_no_other(
    count: int, factor: float
) -> None:
    for number in range(count):
        check = run(machines(count), {f"n{number:03}": (Speed.LINK, factor)})
        assert bad(check) == {
            f"n{number:03}": Finding(Verdict.SLOW, Speed.LINK, pytest.approx(1 / factor))
        }
        assert len(check.rounds) <= 4


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_link_that_is_slow_at_one_time_and_fails_at_another_is_named(count: int) -> None:
    for number, fails in itertools.product(range(count), range(4)):
        name = f"n{number:03}"
        check = Check(machines(count))
        while (pairs := next_round(check)) is not None:
            turn, measured = len(check.rounds), []
            for one, other in [each for pair in pairs for each in (pair, pair[::-1]) if each[0]]:
                failed = bool(other) and name in (one, other) and turn == fails
                speeds = {Speed.COMPUTE: 1.0}
                if other and not failed:
                    speeds[Speed.LINK] = 0.01 if name in (one, other) else 1.0
                measured.append(Measurement(one, other, speeds, failed))
            check = check.add(measured)
        assert set(bad(check)) == {name}, (number, fails)


def test_of_a_link_of_which_nothing_is_known_nothing_good_is_said() -> None:
    unknown = Measurement("n000", speeds={Speed.COMPUTE: 1.0}, incomplete=True)
    others = [Measurement(f"n{number:03}", speeds={Speed.COMPUTE: 1.0}) for number in (1, 2, 3)]
    found = findings(Check(machines(4)).add([unknown, *others]))
    assert found["n000"].verdict is Verdict.UNKNOWN
    assert found["n001"].verdict is Verdict.GOOD
    slow = Measurement("n000", speeds={Speed.COMPUTE: 0.1}, incomplete=True)
    found = findings(Check(machines(4)).add([slow, *others]).add([slow, *others]))
    assert found["n000"].verdict is Verdict.SLOW


def test_a_failing_machine_is_named_and_its_partners_are_not() -> None:
    check = run(machines(8), failing=frozenset({"n003"}))
    assert bad(check) == {"n003": Finding(Verdict.FAILING)}
    assert findings(check)["n002"].verdict is Verdict.GOOD


def test_two_bad_ones_that_met_are_both_named() -> None:
    assert set(bad(run(machines(8), failing=frozenset({"n002", "n003"})))) == {"n002", "n003"}


def test_old_hardware_is_not_slow_for_being_old() -> None:
    hardware = {**machines(6, "old"), **machines(6, "new")}
    base = {"old": 1.0, "new": 8.0}
    assert not bad(run(hardware, base=base))
    slow = {"newn001": (Speed.COMPUTE, 0.25)}  # twice as fast as any old one
    assert set(bad(run(hardware, slow, base=base))) == {"newn001"}


def test_a_single_machine_is_measured_and_nothing_is_held_against_it() -> None:
    check = run(machines(1), {"n000": (Speed.COMPUTE, 0.01)})
    assert not bad(check)
    assert len(check.rounds) <= 2


def test_a_neighbours_load_for_a_moment_is_no_verdict() -> None:
    check = Check(machines(6))
    for number in range(MOST_ROUNDS):
        if (pairs := next_round(check)) is None:
            break
        factor = 0.2 if number == 0 else 1.0
        check = check.add(
            Measurement(
                name, other, {Speed.COMPUTE: factor if name == "n002" else 1.0, Speed.LINK: 1.0}
            )
            for pair in pairs
            for name, other in (pair, pair[::-1])
            if name
        )
    assert not bad(check)


def test_who_was_not_measured_is_unknown() -> None:
    check = Check(machines(4)).add([])
    assert {found.verdict for found in findings(check).values()} == {Verdict.UNKNOWN}


def test_no_more_than_half_of_a_class_are_slow() -> None:
    values = [1.0] * 4 + [0.1] * 4
    assert sum(value < usual(values).slow for value in values) <= 4
    assert usual([1.0]).slow == 0
    assert usual([1.0, 0.5]).slow < 0.5


MEASURED = st.fixed_dictionaries(
    {what: st.floats(0.0, 1e12, allow_nan=False) for what in (Speed.COMPUTE, Speed.LINK)}
)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text("ab12", min_size=1, max_size=4), st.sampled_from("xyz"), max_size=12),
    st.data(),
)
def test_whatever_is_measured_it_ends_and_pairs_are_new(
    hardware: dict[str, str], data: st.DataObject
) -> None:
    check, met = Check(hardware), set[frozenset[str]]()
    votes = dict.fromkeys(hardware, 0)
    while (pairs := next_round(check)) is not None:
        named = [name for pair in pairs for name in pair if name]
        assert len(named) == len(set(named))
        assert set(named) <= set(hardware)
        for pair in pairs:
            assert pair[0]
            if pair[1]:
                assert frozenset(pair) not in met
        measured = []
        for one, other in pairs:
            for name, partner in ((one, other), (other, one)):
                if name and data.draw(st.integers(0, 9)):  # now and then one says nothing
                    failed = bool(partner) and data.draw(st.booleans())
                    measured.append(Measurement(name, partner, data.draw(MEASURED), failed))
                    votes[name] += 1
                    met.add(frozenset((name, partner)))
        check = check.add(measured)
    assert len(check.rounds) <= MOST_ROUNDS
    found = findings(check)
    assert set(found) == set(hardware)
    for name in bad(check):
        assert votes[name] >= votes_needed(len(hardware))
