"""Which shards are read when: each once in every epoch, whoever divides them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.tensorflow.shard_order import (
    ShardOrder,
    elements_before,
    read_round_key,
    round_key,
    step_after,
)


def shards_of(order: ShardOrder, epoch: int) -> list[int]:
    return [
        order.shard(epoch, number, place)
        for number in range(order.rounds)
        for place in range(order.width(number))
    ]


@given(
    count=st.integers(1, 60),
    processes=st.integers(1, 60),
    cycle_length=st.integers(1, 20),
    seed=st.integers(0, 1 << 40),
    epoch=st.integers(0, 1000),
    shuffle=st.booleans(),
)
def test_each_shard_is_one_process_s(
    count: int, processes: int, cycle_length: int, seed: int, epoch: int, shuffle: bool
) -> None:
    processes = min(processes, count)
    orders = [
        ShardOrder(count, seed, shuffle, index, processes, cycle_length)
        for index in range(processes)
    ]
    read = [shards_of(order, epoch) for order in orders]
    assert sorted(shard for one in read for shard in one) == list(range(count))
    assert [len(one) for one in read] == [order.own for order in orders]


def test_shards_are_in_another_order_in_each_epoch_and_with_each_seed() -> None:
    order = ShardOrder(50, seed=1)
    assert shards_of(order, 0) == shards_of(ShardOrder(50, seed=1), 0)
    assert len({tuple(shards_of(order, epoch)) for epoch in range(4)}) == 4
    assert shards_of(order, 0) != shards_of(ShardOrder(50, seed=2), 0)
    assert shards_of(ShardOrder(50, shuffle=False), 7) == list(range(50))
    assert order.seed_of(0, 3) != order.seed_of(1, 3)


@given(epoch=st.integers(0, 1 << 30), number=st.integers(0, (1 << 32) - 1))
def test_a_round_is_one_number_on_its_way(epoch: int, number: int) -> None:
    assert read_round_key(round_key(epoch, number)) == (epoch, number)
    assert round_key(epoch, number) < 1 << 63


@given(ends=st.lists(st.integers(0, 12), min_size=1, max_size=8), data=st.data())
def test_elements_and_steps_are_each_other_s_inverse(ends: list[int], data: st.DataObject) -> None:
    width = len(ends)
    steps = sorted(
        position * width + place for place, end in enumerate(ends) for position in range(end)
    )
    taken = data.draw(st.integers(0, len(steps)))
    next_step = steps[taken] if taken < len(steps) else max(ends) * width
    # What is known of ends: at least those of shards that were passed over before.
    unknown = {place for place, end in enumerate(ends) if end * width + place >= next_step}
    hidden = data.draw(st.sets(st.sampled_from(sorted(unknown)))) if unknown else set()
    known = {place: end for place, end in enumerate(ends) if place not in hidden}
    step = step_after(taken, width, known)
    assert elements_before(step, width, known) == taken
    assert [one for one in steps if one < step] == steps[:taken]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"count": 0}, "shards"),
        ({"count": 4, "index": 2, "processes": 2}, "index"),
        ({"count": 4, "processes": 0}, "count"),
        ({"count": 2, "processes": 3}, "shards: 2; 3 training processes"),
        ({"count": 2, "cycle_length": 0}, "cycle_length"),
        ({"count": 2, "cycle_length": 257}, "cycle_length"),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, int], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        ShardOrder(**options)
