"""Layouts give every partition an owner, equal shares, and move no more than they must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.parameter_server.layout import Layout, ServerAddress, ServerId, assign

PARTITIONS = 128


def server(rank: int, incarnation: int = 0) -> ServerAddress:
    """A server of a rank."""
    identity = ServerId(rank=rank, incarnation=incarnation, nonce="x")
    return ServerAddress(id=identity, address=f"127.0.0.1:{9000 + rank}")


def shares(layout: Layout) -> list[int]:
    """Partitions of each server."""
    return [layout.owners.count(index) for index in range(len(layout.servers))]


@given(
    st.sets(st.integers(0, 40), min_size=1, max_size=12),
    st.sets(st.integers(0, 40), min_size=1, max_size=12),
)
def test_a_change_moves_only_what_has_no_place_any_more(before: set[int], after: set[int]) -> None:
    old = assign(1, [server(rank) for rank in before], PARTITIONS)
    new = assign(2, [server(rank) for rank in after], PARTITIONS, old)
    assert max(shares(new)) - min(shares(new)) <= 1
    kept = sum(
        old.servers[a].id == new.servers[b].id for a, b in zip(old.owners, new.owners, strict=True)
    )
    had = {one.id.rank: count for one, count in zip(old.servers, shares(old), strict=True)}
    most = sum(
        min(had.get(one.id.rank, 0), count)
        for one, count in zip(new.servers, shares(new), strict=True)
    )
    assert kept == most


def test_a_new_life_takes_over_what_its_rank_had() -> None:
    old = assign(1, [server(0), server(1)], PARTITIONS)
    new = assign(2, [server(0), server(1, incarnation=1)], PARTITIONS, old)
    assert new.owners == old.owners
    assert new.owned_by(server(1, incarnation=1).id) == old.owned_by(server(1).id)
    assert new.owned_by(server(1).id) == ()


def test_more_servers_than_partitions() -> None:
    layout = assign(1, [server(rank) for rank in range(6)], 4)
    assert shares(layout) == [1, 1, 1, 1]


def test_an_owner_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="owners: 1 of 1 servers"):
        Layout(number=1, servers=(server(0),), owners=(0, 1))
