"""The searched configuration is whole, within bounds, and shares servers by their work."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.brain.model.ps_search import allocate


@given(
    work=st.lists(st.floats(0.01, 10), min_size=1, max_size=12),
    extra=st.integers(0, 200),
    largest=st.integers(1, 32),
)
@example(work=[1.375, 2.25, *[0.1875] * 2, *[0.15625] * 8], extra=28, largest=16)
def test_cores_are_shared_out_whole_and_fairly(work: list[float], extra: int, largest: int) -> None:
    cores = len(work) + extra
    sizes = allocate(work, cores, largest)
    assert all(1 <= size <= largest for size in sizes)
    assert sum(sizes) == min(cores, largest * len(work))
    # Taking a core from any server for another never relieves the most loaded core.
    worst = max(part / size for part, size in zip(work, sizes, strict=True))
    full = [part / size for part, size in zip(work, sizes, strict=True) if size == largest]
    if worst not in full:
        for part, size in zip(work, sizes, strict=True):
            if size > 1 and part / size < worst:
                assert part / (size - 1) >= worst - 1e-9
