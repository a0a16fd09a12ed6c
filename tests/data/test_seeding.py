"""Random numbers depend on seed and index, and the program's own are left alone."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.pipeline import Pipeline
from penstock.data.seeding import Generator, number_of, preserved, seed_for


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


DRAWS = {
    Generator.PYTHON: lambda: random.gauss(0, 1),
    Generator.NUMPY: lambda: float(np.random.randn()),
    Generator.TORCH: lambda: float(torch.randn(())),
}


class Drawing:
    """Samples that draw from the generators that the index says."""

    def __init__(
        self, draw_at: dict[int, set[Generator]], raise_at: frozenset[int] = frozenset()
    ) -> None:
        self.draw_at, self.raise_at, self.made = draw_at, raise_at, 0

    def __getitem__(self, index: int) -> Any:
        self.made += 1
        drawn = {one.value: DRAWS[one]() for one in Generator if one in self.draw_at.get(index, ())}
        if index in self.raise_at:
            raise ValueError(f"{index} {drawn}")
        return index, drawn


def each_alone(dataset: Any, seed: int, indices: list[int]) -> list[Any]:
    samples = []
    for index in indices:
        seed_for(seed, index)
        samples.append(dataset[index])
    return samples


INDICES = list(range(32))
GENERATORS = st.sets(st.sampled_from(Generator))


@given(
    draw_at=st.dictionaries(st.sampled_from(INDICES), GENERATORS, max_size=4)
    | GENERATORS.map(lambda found: dict.fromkeys(INDICES, found)),
    later=st.dictionaries(st.sampled_from(INDICES), GENERATORS, max_size=4),
)
def test_a_sample_draws_its_own_numbers_whether_or_not_others_draw(
    draw_at: dict[int, set[Generator]], later: dict[int, set[Generator]]
) -> None:
    pipeline = Pipeline(Drawing(draw_at), list)
    for now in (draw_at, draw_at, {**draw_at, **later}):
        pipeline.dataset.draw_at = now
        wanted = each_alone(Drawing(now), 3, INDICES)
        for _ in range(2):
            assert pipeline.make(3, INDICES) == wanted
        assert pipeline.make(3, INDICES[::-1]) == wanted[::-1]
        assert pipeline.make(3, INDICES[4:7]) == wanted[4:7]
        assert pipeline.draws.seen == frozenset().union(*now.values(), pipeline.draws.seen)


def test_what_nobody_draws_from_is_not_seeded_for_each() -> None:
    pipeline = Pipeline(Drawing({}), list)
    pipeline.make(3, INDICES)
    assert pipeline.draws.seen == frozenset()
    assert pipeline.dataset.made == 32


def test_drawing_is_noticed_with_the_first_sample() -> None:
    pipeline = Pipeline(Drawing({key: {Generator.NUMPY} for key in INDICES}), list)
    pipeline.make(3, INDICES)
    assert pipeline.dataset.made == 33
    pipeline.make(3, INDICES)
    assert pipeline.dataset.made == 65


@pytest.mark.parametrize("generator", Generator)
@pytest.mark.parametrize("draw_at", [{9}, {3, 9}, set()])
def test_an_error_shows_the_numbers_of_its_own_sample(
    draw_at: set[int], generator: Generator
) -> None:
    def broken() -> Drawing:
        return Drawing({key: {generator} for key in draw_at}, frozenset({9}))

    with pytest.raises(ValueError, match="9") as wanted:
        each_alone(broken(), 3, [9])
    with pytest.raises(ValueError, match="9") as got:
        Pipeline(broken(), list).make(3, INDICES)
    assert str(got.value) == str(wanted.value)
    bad: list[Any] = []
    batch = Pipeline(broken(), list).make(3, INDICES, bad)
    assert [(index, str(error)) for index, error in bad] == [(9, str(wanted.value))]
    assert [sample[0] for sample in batch] == [*range(9), *range(10, 32)]


def test_what_was_learned_is_no_part_of_a_pipeline() -> None:
    pipeline = Pipeline(Drawing({1: {Generator.PYTHON}}), list)
    before = pickle.dumps(pipeline.draws)
    pipeline.make(3, list(range(32)))
    assert pickle.dumps(pipeline.draws) == before
    assert not pickle.loads(before).seen
