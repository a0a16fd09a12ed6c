"""What processes are told of their world: the names of torchrun, whatever the sizes of the pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.job.protocol import Group, GroupMember, MemberId, Restore
from penstock.trainer.launch.world import World

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def group_of(sizes: list[int], host: str = "10.0.0.7") -> Group:
    members = tuple(
        GroupMember(
            id=MemberId(rank=3 * index, incarnation=0, nonce=f"n{index}"),
            address=f"{host}:{4000 + index}",
            processes=size,
        )
        for index, size in enumerate(sizes)
    )
    return Group(
        number=4, members=members, source=0, start_step=0, restore=Restore.FRESH, shares=()
    )


def worlds_of(sizes: list[int]) -> list[World]:
    group = group_of(sizes)
    return [World.of(group, member.id, "job") for member in group.members]


@given(SIZES)
def test_every_rank_is_one_process_and_pods_have_contiguous_ranks(sizes: list[int]) -> None:
    told = [
        world.environment(local_rank, {})
        for world, size in zip(worlds_of(sizes), sizes, strict=True)
        for local_rank in range(size)
    ]
    assert [int(each["RANK"]) for each in told] == list(range(sum(sizes)))
    assert {each["WORLD_SIZE"] for each in told} == {str(sum(sizes))}
    assert {(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in told} == {("10.0.0.7", "4000")}
    for each in told:
        index = int(each["GROUP_RANK"])
        first = sum(sizes[:index])
        assert int(each["RANK"]) == first + int(each["LOCAL_RANK"])
        assert int(each["LOCAL_WORLD_SIZE"]) == sizes[index]
        assert int(each["GROUP_WORLD_SIZE"]) == len(sizes)
        assert (each["ROLE_RANK"], each["ROLE_WORLD_SIZE"]) == (each["RANK"], each["WORLD_SIZE"])


def test_restarts_are_counted_from_the_first_world() -> None:
    told = worlds_of([1])[0].environment(0, {"TORCHELASTIC_RESTART_COUNT": "9", "MINE": "1"})
    assert told["TORCHELASTIC_RESTART_COUNT"] == "3"
    assert told["TORCHELASTIC_RUN_ID"] == "job"
    assert told["MINE"] == "1"


@pytest.mark.parametrize(
    ("size", "environ", "threads"),
    [(1, {}, None), (2, {}, "1"), (2, {"OMP_NUM_THREADS": "6"}, "6")],
)
def test_several_processes_have_one_thread_each_unless_told(
    size: int, environ: dict[str, str], threads: str | None
) -> None:
    assert worlds_of([size])[0].environment(0, environ).get("OMP_NUM_THREADS") == threads


def test_an_address_of_ipv6_is_given_as_the_system_wants_it() -> None:
    group = group_of([1], host="[fd00::7]")
    assert World.of(group, group.members[0].id, "job").host == "fd00::7"


def test_who_is_not_in_the_group_is_named() -> None:
    with pytest.raises(ValueError, match=r"worker-9\.0 is not in group 4"):
        World.of(group_of([1]), MemberId(rank=9, incarnation=0, nonce="x"), "job")
