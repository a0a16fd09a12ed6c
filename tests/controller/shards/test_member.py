"""Shards: no job ever has two owners, and none is without one for longer than a Lease."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.base.shards import (
    MOST_SHARDS,
    Share,
    different_numbers,
    holder_of,
    lease_name,
    read_holder,
    read_number,
    shard_of,
)
from tests.controller.shards.world import JOBS, LEASE_SECONDS, LOOK_SECONDS, World

ENOUGH_SECONDS = LEASE_SECONDS + 4 * LOOK_SECONDS


class Division(RuleBasedStateMachine):
    """Processes that start, look, die and lose the API server, in any order, while the number
    changes; a look may be interrupted between any two of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(3)

    @rule(number=st.integers(1, 5))
    def change_number(self, number: int) -> None:
        self.world.number = number

    @precondition(lambda self: len(self.world.living()) < 7)
    @rule()
    def start(self) -> None:
        self.world.start()

    @precondition(lambda self: len(self.world.living()) > 1)
    @rule(which=st.integers(0, 99))
    def kill(self, which: int) -> None:
        living = self.world.living()
        living[which % len(living)].alive = False

    @rule(which=st.integers(0, 99))
    def cut_off_or_back(self, which: int) -> None:
        living = self.world.living()
        process = living[which % len(living)]
        process.reachable = not process.reachable

    @rule(which=st.integers(0, 99), calls=st.integers(1, 20))
    def call(self, which: int, calls: int) -> None:
        living = self.world.living()
        for _ in range(calls):
            self.world.read(living[which % len(living)])

    @rule(seconds=st.sampled_from((0.5, 2.0, 5.0, 9.0)))
    def wait(self, seconds: float) -> None:
        left = seconds
        while left > 0:
            self.world.pass_time(min(1.0, left))
            left -= 1.0

    @rule()
    def everybody_looks(self) -> None:
        for process in self.world.living():
            self.world.look(process)
        self.world.pass_time(LOOK_SECONDS)

    @invariant()
    def no_job_has_two_owners(self) -> None:
        for job in JOBS:
            owners = self.world.owners(job)
            assert len(owners) <= 1, (job, [(one.member.identity, one.owns) for one in owners])

    def teardown(self) -> None:
        world = self.world
        for process in world.living():
            process.reachable = True
        while len(world.living()) < world.number:
            world.start()
        world.settle(ENOUGH_SECONDS)
        for job in JOBS:
            assert len(world.owners(job)) == 1, job


Division.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestDivision = Division.TestCase


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3), (3, 2), (5, 4)])
def test_another_number_leaves_no_job_alone_for_longer_than_a_lease(
    before: int, after: int
) -> None:
    world = World(max(before, after))
    world.number = before
    world.settle(ENOUGH_SECONDS)
    assert sorted(filter(None, (one.owns for one in world.processes))) == [
        Share(shard, before) for shard in range(before)
    ]
    world.number = after
    assert world.settle(3 * LEASE_SECONDS) <= LEASE_SECONDS
    assert sorted(filter(None, (one.owns for one in world.processes))) == [
        Share(shard, after) for shard in range(after)
    ]


def test_a_spare_takes_the_shard_of_one_that_died() -> None:
    world = World(4)
    world.number = 3
    world.settle(ENOUGH_SECONDS)
    victim = next(one for one in world.processes if one.owns == Share(1, 3))
    victim.alive = False
    longest = world.settle(3 * LEASE_SECONDS)
    assert LEASE_SECONDS - LOOK_SECONDS <= longest <= LEASE_SECONDS + 3 * LOOK_SECONDS
    assert Share(1, 3) in [one.owns for one in world.living()]


def test_nobody_begins_beside_an_older_release_that_holds_all_jobs() -> None:
    world = World(0)
    world.leases[0].holder = "an-older-release-1234"
    for _ in range(3):
        world.start()
    world.number = 2
    for _ in range(20):
        world.leases[0].version += 1  # it goes on renewing
        for process in world.processes:
            world.look(process)
        world.pass_time(LOOK_SECONDS)
        assert not any(one.owns for one in world.processes)
    world.leases[0].holder, world.leases[0].version = "", 999
    world.settle(ENOUGH_SECONDS)
    assert all(len(world.owners(job)) == 1 for job in JOBS)


def test_one_that_cannot_see_the_number_stops() -> None:
    world = World(1)
    world.settle(ENOUGH_SECONDS)
    [process] = world.processes
    process.reachable = False
    for _ in range(4):
        world.read(process)
        world.now += 2.5
    world.read(process)
    assert process.owns is None


def test_jobs_are_divided_evenly_and_the_same_everywhere() -> None:
    counts = Counter(shard_of("team", f"job-{number}", 4) for number in range(10_000))
    assert sorted(counts) == [0, 1, 2, 3]
    assert all(abs(count - 2_500) < 250 for count in counts.values())
    assert [shard_of("team", f"job-{number}", 16) for number in range(4)] == [7, 11, 5, 0]
    assert all(Share().owns(*job) for job in JOBS)


def test_names_that_are_written_are_read() -> None:
    assert [lease_name(0), lease_name(3)] == ["penstock-controller", "penstock-controller-3"]
    assert read_holder(holder_of("host-1-abc", Share(2, 5)), 2) == Share(2, 5)
    assert holder_of("host-1-abc", Share()) == "host-1-abc"
    assert read_holder("host-1-abc") == Share()
    assert different_numbers(["a", "", "b shard 1 of 2"]) == [1, 2]
    assert different_numbers(["a shard 0 of 2", "b shard 1 of 2"]) == []


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", str(MOST_SHARDS + 1)])
def test_numbers_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number from 1 to 16"):
        read_number(text)


def test_without_a_number_there_is_one_shard() -> None:
    assert (read_number(None), read_number("4")) == (1, 4)
