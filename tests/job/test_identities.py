"""Names and ranks of a job's identities."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Role
from penstock.job.identities import MemberId, consumer_name, ranks_of, replica_name


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12))
def test_every_rank_belongs_to_one_member_in_the_order_of_members(sizes: list[int]) -> None:
    ranks = [rank for index in range(len(sizes)) for rank in ranks_of(index, sizes)]
    assert ranks == list(range(sum(sizes)))
    assert [len(ranks_of(index, sizes)) for index in range(len(sizes))] == sizes


def test_a_member_is_called_as_its_replica_whichever_life_it_is() -> None:
    names = {str(MemberId(rank=3, incarnation=1, nonce=nonce)) for nonce in ("a", "b")}
    assert names == {replica_name(Role.WORKER, 3, 1)} == {"worker-3.1"}


def test_a_consumer_is_told_apart_from_others_of_its_replica() -> None:
    assert consumer_name(3, 1) == replica_name(Role.WORKER, 3, 1)
    assert consumer_name(3, 1, "a") != consumer_name(3, 1, "b")
