"""Two lives in one process: each draws what it would draw by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.generator_states import generator_states, set_generator_states

DRAWS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "uniform": np.random.rand,
    "normal": np.random.randn,
    "two normals": lambda: np.random.randn(2).tolist(),
    "integers": lambda: np.random.randint(0, 1 << 30, 700).tolist(),
    "python": random.random,
    "gauss": lambda: random.gauss(0, 1),
    "torch": lambda: torch.rand(()).item(),
    "seed": lambda: np.random.seed(7),
}
LIVES = st.lists(st.tuples(st.booleans(), st.sampled_from(sorted(DRAWS))), max_size=30)


def begin(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@pytest.fixture(autouse=True)
def _put_back() -> Any:
    before = np.random.get_state()
    yield
    np.random.set_state(before)


@settings(max_examples=300, deadline=None)
@given(LIVES)
def test_two_lives_do_not_meet(steps: list[tuple[bool, str]]) -> None:
    wanted = {}
    for life in (False, True):
        begin(int(life))
        wanted[life] = [DRAWS[what]() for whose, what in steps if whose is life]
    states = {}
    for life in (True, False):
        begin(int(life))
        states[life] = generator_states()
    got: dict[bool, list[Any]] = {False: [], True: []}
    present = False
    for whose, what in steps:
        if whose is not present:
            states[present] = generator_states()
            set_generator_states(states[whose])
            present = whose
        got[whose].append(DRAWS[what]())
    assert got == wanted


def test_a_generator_of_another_kind_is_put_back_too() -> None:
    module: Any = np.random
    before = module.get_bit_generator()
    try:
        module.set_bit_generator(np.random.PCG64(5))
        states = generator_states()
        first = np.random.rand(3).tolist()
        set_generator_states(states)
        assert np.random.rand(3).tolist() == first
    finally:
        module.set_bit_generator(before)
