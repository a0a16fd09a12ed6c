"""What GPUs did, of one sample and of many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Role
from penstock.brain.model.gpu_use import (
    GpuUse,
    dump,
    load,
    mean_utilization,
    merged,
    of_columns,
)
from penstock.brain.rank_columns import RankColumns, pack, rank_samples

PLAIN: RankColumns = {"rank": [0, 1], "milli_cpu": [1, 2], "memory_bytes": [3, 4]}
SEEN: RankColumns = {
    **PLAIN,
    "gpus": [1, 3],
    "gpu_utilization": [1.0, 0.2],
    "gpu_memory_bytes": [10, None],
    "gpu_memory_total_bytes": [80, 240],
}


def test_the_mean_is_over_devices_and_the_rest_are_sums() -> None:
    use = of_columns(SEEN)
    assert use is not None
    assert use.utilization == pytest.approx(0.4)
    assert (use.gpus, use.memory_bytes, use.memory_total_bytes) == (4, 10, 320)
    assert use.power_watts is None
    assert of_columns(PLAIN) is None


def test_a_rank_without_devices_counts_for_nothing() -> None:
    columns = {**PLAIN, "gpus": [None, 2], "gpu_utilization": [None, 0.5]}
    assert of_columns(columns) == GpuUse(2, 0.5)


def test_algorithms_see_the_utilisation_of_each_rank() -> None:
    samples = rank_samples({**PLAIN, "gpus": [None, 2], "gpu_utilization": [None, 0.5]})
    assert [samples[rank].gpu_utilization for rank in (0, 1)] == [None, 0.5]


def test_intervals_are_weighed_by_their_seconds_and_devices() -> None:
    uses = [(GpuUse(1, 1.0, 5, 80, 100), 10.0), (GpuUse(3, 0.0, 9, 240, 500), 30.0)]
    use = merged(uses)
    assert (use.gpus, use.utilization, use.power_watts) == (2.5, 0.1, 400)
    assert (use.memory_bytes, use.memory_total_bytes) == (9, 240), "memory is the peak"
    assert merged([(GpuUse(1), 1.0)]) == GpuUse(1)


FIGURE = st.none() | st.floats(0, 1)


@given(
    st.lists(
        st.tuples(st.builds(GpuUse, st.integers(1, 8), FIGURE), st.floats(0.1, 60)), min_size=1
    )
)
def test_a_mean_lies_between_its_values(uses: list[tuple[GpuUse, float]]) -> None:
    values = [use.utilization for use, _ in uses if use.utilization is not None]
    mean = merged(uses).utilization
    assert (mean is None) == (not values)
    if mean is not None:
        assert min(values) - 1e-9 <= mean <= max(values) + 1e-9


def test_samples_are_summed_up_by_role() -> None:
    samples = [
        pack({Role.WORKER: {**PLAIN, "gpus": [1, 1], "gpu_utilization": [busy, busy]}})
        for busy in (0.25, 0.75)
    ]
    samples.append(pack({Role.WORKER: PLAIN, Role.PS: {**PLAIN, "gpus": [1, 1]}}))
    assert mean_utilization(samples) == {Role.WORKER: 0.5}


def test_the_store_gives_back_what_it_was_given() -> None:
    uses = {"worker": GpuUse(4, 0.4, 10, 320), "ps": GpuUse(1)}
    assert load(dump(uses)) == uses
    assert dump({}) is None
    assert load(None) == {}
