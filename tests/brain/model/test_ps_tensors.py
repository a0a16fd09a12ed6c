"""Tensors placed in turn are found from the work of the servers, and no others are made up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brain.model.ps_tensors import infer, spread

Floats = npt.NDArray[np.floating[Any]]


def in_turn(tensors: Iterable[float], servers: int) -> Floats:
    loads = np.zeros(servers)
    for index, tensor in enumerate(tensors):
        loads[index % servers] += tensor
    return loads


@given(tensors=st.integers(16, 26), sigma=st.floats(0.3, 1.2), seed=st.integers(0, 2**32 - 1))
def test_three_numbers_of_servers_tell_the_spread_over_a_fourth(
    tensors: int, sigma: float, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    parts = chance.lognormal(0, sigma, tensors)
    work = {n: in_turn(parts, n) * chance.normal(1, 0.002, n) for n in (4, 11, 15)}
    found = infer(work)
    assert found is not None
    truth = in_turn(parts, 22) / parts.sum()
    assert spread(found, 22).sum() == pytest.approx(1)
    assert np.abs(spread(found, 22) - truth).max() < 0.1 * truth.max()


def test_one_number_or_two_small_ones_tell_nothing() -> None:
    tensors = [1.0, 2.0, 3.0, 1.5, 0.5, 2.5, 1.0, 4.0, 0.2, 0.9, 1.1, 3.3]
    assert infer({4: in_turn(tensors, 4)}) is None
    assert infer({4: in_turn(tensors, 4), 5: in_turn(tensors, 5)}) is None


@given(st.integers(0, 2**32 - 1))
def test_shares_that_no_tensors_in_turn_explain_are_left_alone(seed: int) -> None:
    chance = np.random.default_rng(seed)
    assert infer({n: chance.lognormal(0, 0.7, n) for n in (4, 11, 15)}) is None
