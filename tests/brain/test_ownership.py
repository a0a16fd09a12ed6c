"""Each job has one of the living replicas, whatever comes and goes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.brain.ownership import moves, owner

UIDS = [f"uid-{number}" for number in range(3000)]
LEASE = 9.0
LOOK = 3.0
MOST = 4


def test_jobs_are_shared_out_evenly() -> None:
    for living in (["a", "b"], ["a", "b", "c"], [f"replica-{n}" for n in range(7)]):
        held = Counter(owner(uid, living) for uid in UIDS)
        fair = len(UIDS) / len(living)
        assert all(0.85 * fair < held[replica] < 1.15 * fair for replica in living)


def test_one_that_comes_takes_from_all_and_moves_nothing_else() -> None:
    before = {uid: owner(uid, ["a", "b", "c"]) for uid in UIDS}
    after = {uid: owner(uid, ["a", "b", "c", "d"]) for uid in UIDS}
    moved = [uid for uid in UIDS if before[uid] != after[uid]]
    assert {after[uid] for uid in moved} == {"d"}
    assert {before[uid] for uid in moved} == {"a", "b", "c"}


@given(
    living=st.sets(st.sampled_from("abcde"), min_size=1),
    held=st.sets(st.sampled_from(UIDS[:30])),
    free=st.sets(st.sampled_from(UIDS[30:60])),
    most=st.integers(1, 40),
)
def test_what_is_free_has_one_taker_and_nothing_else_is_let_go(
    living: set[str], held: set[str], free: set[str], most: int
) -> None:
    found = {replica: moves(replica, living, held, free, most) for replica in living}
    taken = [uid for one in found.values() for uid in one.take]
    assert len(taken) == len(set(taken))
    assert set(taken) <= free
    for replica, one in found.items():
        assert len(one.take) <= most
        assert len(one.release) <= most
        assert set(one.release) <= held
        assert all(owner(uid, living) == replica for uid in one.take)
        assert all(owner(uid, living) != replica for uid in one.release)
    if most == 40:
        assert set(taken) == free


def test_without_a_replica_nothing_has_an_owner() -> None:
    with pytest.raises(ValueError, match="empty"):
        owner("uid-1", [])


class Replicas(RuleBasedStateMachine):
    """Replicas on one database: each looks every `LOOK` seconds while it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.known: dict[str, float] = {}
        """Replicas that are known to live, and until when."""
        self.alive: list[str] = []
        self.leases: dict[str, tuple[str, float]] = {}
        self.last_led: dict[str, float] = {}
        self.one_lives_since = 0.0
        self.killed = -LEASE

    def look(self, replica: str) -> bool:
        """One claim, as `store.leases` makes it; whether it moved anything."""
        self.known[replica] = self.now + LEASE
        self.known = {name: until for name, until in self.known.items() if until >= self.now}
        for uid, (holder, _) in self.leases.items():
            if holder == replica:
                self.leases[uid] = (replica, self.now + LEASE)
        held = [uid for uid, (holder, _) in self.leases.items() if holder == replica]
        free = [uid for uid, (_, until) in self.leases.items() if until < self.now]
        wanted = moves(replica, self.known, held, free, MOST)
        for uid in wanted.take:
            assert self.leases[uid][1] < self.now, "somebody else leads it"
            self.leases[uid] = (replica, self.now + LEASE)
        for uid in wanted.release:
            self.leases[uid] = ("", -1.0)
        return bool(wanted.take or wanted.release)

    def look_round(self) -> bool:
        """Time for each to look, again while there is more; whether anything moved."""
        self.now += LOOK
        moved = False
        for _ in range(len(self.leases) // MOST + 1):
            for replica in self.alive:
                moved = self.look(replica) or moved
        return moved

    @rule()
    def start(self) -> None:
        if len(self.alive) < 4:
            if not self.alive:
                self.one_lives_since = self.now
            self.number += 1
            self.alive.append(f"replica-{self.number}")
            self.look(self.alive[-1])

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 3))
    def kill(self, which: int) -> None:
        del self.alive[which % len(self.alive)]
        self.killed = self.now

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 3))
    def stop(self, which: int) -> None:
        gone = self.alive.pop(which % len(self.alive))
        del self.known[gone]
        for uid, (holder, _) in self.leases.items():
            if holder == gone:
                self.leases[uid] = ("", -1.0)

    @rule(count=st.integers(1, 9))
    def register(self, count: int) -> None:
        for _ in range(count):
            uid = f"uid-{len(self.last_led)}"
            self.leases[uid] = ("", -1.0)
            self.last_led[uid] = self.now

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 99))
    def finish(self, which: int) -> None:
        del self.leases[sorted(self.leases)[which % len(self.leases)]]

    @rule()
    def time_passes(self) -> None:
        self.look_round()

    @precondition(lambda self: self.alive)
    @rule()
    def nothing_happens_for_a_while(self) -> None:
        """Then each job is with its owner, and nothing moves any more."""
        for _ in range(int(LEASE // LOOK) + 3):
            self.look_round()
        assert {uid: holder for uid, (holder, _) in self.leases.items()} == {
            uid: owner(uid, self.alive) for uid in self.leases
        }
        assert not self.look_round()

    @invariant()
    def no_job_is_without_a_leader_for_longer_than_a_lease_and_two_looks(self) -> None:
        for uid, (holder, until) in self.leases.items():
            if holder in self.alive and until >= self.now:
                self.last_led[uid] = self.now
            # Until then a replica that was killed counts as one that lives.
            from_when = max(self.last_led[uid], self.killed + LEASE, self.one_lives_since)
            if self.alive:
                assert self.now - from_when <= 2 * LOOK


Replicas.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_replicas = Replicas.TestCase
