"""One planted hang, with the processes that a job has."""

from __future__ import annotations

import pytest

from benchmarks.hang import hang


@pytest.mark.slow
def test_a_lock_in_one_rank_is_named_with_its_function() -> None:
    found = hang("lock", rank=1, step=60, seed=1)
    assert (found.named, found.right_place) == ((1,), True), found
