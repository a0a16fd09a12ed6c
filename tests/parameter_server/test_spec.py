"""Every parameter is in one partition, at one place, whatever the model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    Places,
    SpaceSpec,
    TableSpec,
)

SGD = OptimizerSpec(kind=OptimizerKind.SGD, learning_rate=0.1)
ADAGRAD = OptimizerSpec(kind=OptimizerKind.ADAGRAD, learning_rate=0.1)


@given(st.integers(1, 5000), st.integers(1, 200))
def test_places_are_a_bijection_onto_arrays_of_the_counted_sizes(
    rows: int, partitions: int
) -> None:
    places = Places(rows, partitions)
    partition, index = places.of(np.arange(rows, dtype=np.int64))
    assert len(set(zip(partition.tolist(), index.tolist(), strict=True))) == rows
    for number in range(partitions):
        inside = np.sort(index[partition == number])
        assert inside.tolist() == list(range(places.count(number)))
        back, at = places.of(places.rows_of(number))
        assert (back == number).all()
        assert at.tolist() == inside.tolist()


def test_the_largest_space_does_not_overflow() -> None:
    rows = (1 << 31) - 1
    partition, index = Places(rows, 128).of(np.array([0, 1, rows - 1], dtype=np.int64))
    assert (partition >= 0).all()
    assert (partition < 128).all()
    assert (index >= 0).all()
    assert (index <= rows // 128).all()


def test_neighbouring_and_popular_rows_are_spread() -> None:
    partition, _ = Places(1_000_000, 128).of(np.arange(1280, dtype=np.int64))
    assert np.bincount(partition, minlength=128).max() <= 20  # 10 would be even


@given(st.lists(st.integers(0, 300), max_size=6), st.integers(1, 150))
def test_dense_ranges_cover_the_vector(sizes: list[int], partitions: int) -> None:
    dense = tuple(DenseSpec(name=f"p{i}", shape=(size,)) for i, size in enumerate(sizes))
    spec = ModelSpec(dense=dense, optimizer=SGD, partitions=partitions)
    ranges = [spec.dense_range(partition) for partition in range(partitions)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == spec.dense_size == sum(sizes)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges))
    lengths = [stop - start for start, stop in ranges]
    assert max(lengths) - min(lengths) <= 1


def test_bytes_count_the_optimizer_state() -> None:
    space = SpaceSpec(dim=8, tables=(TableSpec(name="a", rows=100),))
    dense = (DenseSpec(name="w", shape=(10, 2)),)
    plain = ModelSpec(spaces=(space,), dense=dense, optimizer=SGD)
    assert plain.bytes == 4 * (800 + 20)
    assert ModelSpec(spaces=(space,), dense=dense, optimizer=ADAGRAD).bytes == 2 * plain.bytes


def test_a_difference_names_what_differs() -> None:
    one = ModelSpec(
        spaces=(SpaceSpec(dim=8, tables=(TableSpec(name="city", rows=100),)),), optimizer=SGD
    )
    two = ModelSpec(
        spaces=(SpaceSpec(dim=8, tables=(TableSpec(name="city", rows=101),)),), optimizer=SGD
    )
    assert one.difference(one) is None
    assert one.difference(two) == "table city: 101 rows of 8 instead of 100 rows of 8"
    dense = tuple(DenseSpec(name=name, shape=(2,)) for name in "vw")
    more = ModelSpec(spaces=one.spaces, dense=dense, optimizer=SGD)
    assert one.difference(more) == "parameter v: shape [2] instead of absent"
    turned = ModelSpec(spaces=one.spaces, dense=dense[::-1], optimizer=SGD)
    assert more.difference(turned) == (
        "order of tables and parameters: ['city', 'w', 'v'] instead of ['city', 'v', 'w']"
    )


def test_too_many_rows_are_refused_with_their_sum() -> None:
    half = 1 << 30
    with pytest.raises(ValidationError, match=f"have {2 * half} rows together"):
        SpaceSpec(dim=1, tables=(TableSpec(name="a", rows=half), TableSpec(name="b", rows=half)))
