"""Batches of like length from a stream: each sample once, as many as without, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data import Loader
from penstock.data.length_window import like_lengths
from penstock.data.torch_loading.lengths import LengthsError

Numbered = tuple[int, int]


def length_of_pair(sample: Numbered) -> int:
    return sample[1]


@given(
    st.lists(st.integers(0, 30), max_size=120),
    st.integers(1, 9),
    st.integers(1, 5),
    st.none() | st.integers(0, 9),
)
def test_every_sample_comes_once_in_as_many_batches_as_without(
    lengths: list[int], size: int, window: int, seed: int | None
) -> None:
    samples = list(enumerate(lengths))
    taken = 0

    def stream() -> Iterator[Numbered]:
        nonlocal taken
        for sample in samples:
            taken += 1
            yield sample

    given_samples = 0
    found: list[list[Numbered]] = []
    for batch in like_lengths(stream(), size, window=window, length=length_of_pair, seed=seed):
        assert taken - given_samples <= size * window, "more than a window is held"
        given_samples += len(batch)
        found.append(batch)
    assert sorted(one for batch in found for one in batch) == samples
    assert [len(batch) for batch in found[:-1]] == [size] * (len(found) - 1)
    assert len(found) == -(-len(samples) // size)
    again = like_lengths(samples, size, window=window, length=length_of_pair, seed=seed)
    assert list(again) == found
    for start in range(0, len(found), window):
        spans = sorted(
            (min(length for _, length in batch), max(length for _, length in batch))
            for batch in found[start : start + window]
        )
        ends = [high for _, high in spans]
        assert ends == sorted(ends), "batches of a window overlap by more than a length"
        assert all(low >= before for (low, _), before in zip(spans[1:], ends, strict=False))


def test_batches_come_mixed_and_differently_for_another_seed() -> None:
    samples = [(index, index) for index in range(640)]
    orders = [
        [batch[0][1] for batch in like_lengths(samples, 10, length=length_of_pair, seed=seed)]
        for seed in (None, 1, 2)
    ]
    assert orders[0] == sorted(orders[0])
    assert orders[1] != orders[2]
    assert orders[0] not in orders[1:]


def test_most_tokens_are_real() -> None:
    drawn = np.random.default_rng(1).lognormal(4.6, 0.9, 20_000)
    lengths = np.clip(drawn, 4, 512).astype(int).tolist()

    total = float(sum(lengths))

    def real(batches: list[list[Numbered]]) -> float:
        return total / sum(len(batch) * max(length for _, length in batch) for batch in batches)

    samples = list(enumerate(lengths))
    without = [samples[start : start + 32] for start in range(0, len(samples), 32)]
    assert real(without) < 0.35
    assert real(list(like_lengths(samples, 32, length=length_of_pair, seed=1))) > 0.9


@pytest.mark.parametrize("name", ["batch_size", "window"])
def test_what_cannot_be_is_refused_at_once(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: 0; must be at least 1"):
        like_lengths([], 0) if name == "batch_size" else like_lengths([], 1, window=0)


def test_a_sample_without_a_length_is_named() -> None:
    with pytest.raises(LengthsError, match="a sample is a int"):
        list(like_lengths([3], 1))


def test_a_loader_refuses_a_stream_by_name() -> None:
    with pytest.raises(ValueError, match=r"dataset: a generator has no len\(\)"):
        Loader((one for one in range(3)), 1)
