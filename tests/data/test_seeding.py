"""Random numbers depend on seed and index, and the program's own are left alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from penstock.data.seeding import number_of, preserved, seed_for


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.mark.parametrize("index", [0, 7, -1, 2**70, "name", ("a", 3), np.int64(5)])
def test_the_same_seed_and_index_give_the_same_numbers(index: Any) -> None:
    seed_for(3, index)
    first = draw()
    draw()
    seed_for(3, index)
    assert draw() == first
    seed_for(4, index)
    assert draw() != first


def test_indices_of_one_value_are_one_index() -> None:
    assert number_of(np.int64(5)) == number_of(5)
    assert number_of("a") != number_of("b")


def test_the_programs_generators_and_threads_come_back() -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    wanted = draw()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    with preserved():
        seed_for(9, 9)
        assert torch.get_num_threads() == 1
        draw()
    assert draw() == wanted
    assert torch.get_num_threads() == threads
