"""Stragglers are found by their time per slot, and equal machines are none."""

from __future__ import annotations

import random

import pytest

from penstock.trainer.control.model.stragglers import stragglers


@pytest.mark.parametrize("workers", [2, 3, 4, 16])
def test_a_worker_at_a_quarter_of_the_speed_is_found(workers: int) -> None:
    chance = random.Random(workers)
    times = {rank: 0.1 * chance.uniform(0.95, 1.05) for rank in range(workers)}
    times[1] = 0.4
    found = stragglers(times)
    assert list(found) == [1]
    assert found[1] == pytest.approx(4.0, rel=0.1)


def test_of_two_that_differ_as_machines_do_neither_is_called_a_straggler() -> None:
    assert not stragglers({0: 0.1, 1: 0.15})
    assert not stragglers({0: 0.1, 1: 0.29})
    assert stragglers({0: 0.1, 1: 0.31}) == {1: pytest.approx(3.1)}


def test_noise_makes_no_stragglers() -> None:
    chance = random.Random(0)
    for _ in range(200):
        assert not stragglers({rank: 0.1 * chance.uniform(0.85, 1.15) for rank in range(8)})


def test_where_all_differ_much_none_stands_out() -> None:
    assert not stragglers({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4, 4: 0.5, 5: 0.6})


def test_one_worker_is_compared_with_nobody() -> None:
    assert stragglers({0: 5.0}) == {}
    assert stragglers({}) == {}
    assert stragglers({0: 0.0, 1: 0.0}) == {}
