"""Cores are shared fairly, and what is given back is free again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_cluster.kubelet.container.cores import CoreAllocator

CLAIMS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 6000)), max_size=30)


@given(cores=st.integers(1, 8), claims=CLAIMS)
def test_claims_add_up_and_are_given_back(cores: int, claims: list[tuple[str, int]]) -> None:
    allocator = CoreAllocator(range(cores))
    held: dict[str, int] = {}
    for holder, milli_cpu in claims:
        chosen = allocator.assign(holder, milli_cpu)
        held[holder] = milli_cpu
        wanted = -(-milli_cpu // 1000) or cores
        assert len(chosen) == min(wanted, cores)
        assert len(set(chosen)) == len(chosen)
    assert sum(allocator.claimed(core) for core in range(cores)) == sum(held.values())
    for holder in held:
        allocator.release(holder)
    assert all(allocator.claimed(core) == 0 for core in range(cores))


@given(cores=st.integers(1, 8), count=st.integers(1, 20))
def test_equal_claims_are_spread_evenly(cores: int, count: int) -> None:
    allocator = CoreAllocator(range(cores))
    for number in range(count):
        allocator.assign(str(number), 1000)
    loads = [allocator.claimed(core) for core in range(cores)]
    assert max(loads) - min(loads) <= 1000


def test_nobody_shares_while_there_is_enough() -> None:
    allocator = CoreAllocator(range(4))
    first, second = allocator.assign("a", 2000), allocator.assign("b", 2000)
    assert not set(first) & set(second)
