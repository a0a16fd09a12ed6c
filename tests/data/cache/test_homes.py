"""A file has one home, wherever one asks, and a join or a leave moves its share and no more."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.cache.homes import home_of

names = st.sets(st.text(min_size=1, max_size=80), min_size=1, max_size=8)
items = st.lists(st.text(max_size=30), min_size=1, max_size=40)


@given(names, items, st.text(min_size=1, max_size=80))
def test_only_what_the_newcomer_gets_moves(
    daemons: set[str], files: list[str], newcomer: str
) -> None:
    before = {file: home_of(file, sorted(daemons)) for file in files}
    after = {file: home_of(file, sorted(daemons | {newcomer}, reverse=True)) for file in files}
    for file in files:
        assert before[file] in daemons
        assert after[file] in (before[file], newcomer)


@given(names, items, st.data())
def test_weights_that_grow_take_and_never_give(
    daemons: set[str], files: list[str], data: st.DataObject
) -> None:
    weights = {name: data.draw(st.floats(0.1, 100)) for name in sorted(daemons)}
    grown = data.draw(st.sampled_from(sorted(daemons)))
    for file in files:
        before = home_of(file, weights)
        after = home_of(file, {**weights, grown: 2 * weights[grown]})
        assert after in (before, grown)


def test_shares_follow_the_weights() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 5.0, "none": 0.0}
    found = Counter(home_of(f"/data/{number}.jpg", weights) for number in range(8000))
    assert found["none"] == 0
    for name in "abc":
        assert found[name] == pytest.approx(1000 * weights[name], rel=0.1)


def test_a_join_moves_one_in_n() -> None:
    few, many = [f"node-{n}" for n in range(3)], [f"node-{n}" for n in range(4)]
    files = [str(number) for number in range(8000)]
    moved = sum(home_of(file, few) != home_of(file, many) for file in files)
    assert moved / len(files) == pytest.approx(1 / 4, abs=0.02)


def test_nobody_is_there() -> None:
    assert home_of("a", []) is None
    assert home_of("a", {"b": 0.0}) is None


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused_by_name(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of b"):
        home_of("a", {"b": weight})
