"""What a cache keeps: misses are 1 - x in every epoch, within its bytes, and nothing stale."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.data.cache.policy import Key, MinIOPolicy, Verdict


def key(inode: int, size: int = 1, version: int = 0) -> Key:
    return Key(1, inode, size, version)


def read(policy: MinIOPolicy, one: Key, data_set: str = "") -> Verdict:
    """Read a file once, and keep it if there is room."""
    verdict = policy.meet(one, data_set).verdict
    if verdict is Verdict.ADMIT:
        assert policy.note_read(one)
    policy.check_invariants()
    return verdict


@pytest.mark.parametrize("share", [0.0, 0.35, 0.5, 0.65, 1.0])
def test_misses_are_exactly_what_is_not_held(share: float) -> None:
    files = [key(number) for number in range(1000)]
    policy = MinIOPolicy(max(1, int(share * len(files))))
    order = random.Random(1)
    for epoch in range(4):
        order.shuffle(files)
        hits = sum(read(policy, one) is Verdict.HIT for one in files)
        assert hits == (0 if epoch == 0 else max(1, int(share * len(files))))


def test_a_changed_file_is_a_miss_and_its_bytes_are_given_up() -> None:
    policy = MinIOPolicy(10)
    read(policy, key(1, 4))
    changed = key(1, 4, version=1)
    assert changed not in policy
    meeting = policy.meet(changed)
    assert meeting == (Verdict.ADMIT, (key(1, 4),))
    assert policy.held_bytes == 4


def test_of_a_file_that_grew_too_large_nothing_is_held() -> None:
    policy = MinIOPolicy(10, largest=5)
    read(policy, key(1, 4))
    assert policy.meet(key(1, 6, version=1)) == (Verdict.PASS, (key(1, 4),))
    assert policy.held_bytes == 0


@pytest.mark.parametrize("size", [0, 6, 11])
def test_what_is_empty_or_too_large_passes(size: int) -> None:
    assert MinIOPolicy(10, largest=5).meet(key(1, size)).verdict is Verdict.PASS


def test_a_file_is_read_in_once_however_many_ask() -> None:
    policy = MinIOPolicy(10)
    verdicts = [policy.meet(key(1)).verdict for _ in range(3)]
    assert verdicts == [Verdict.ADMIT, Verdict.WAIT, Verdict.WAIT]
    policy.abandon(key(1))
    assert policy.meet(key(1)).verdict is Verdict.ADMIT
    assert policy.note_read(key(1))
    assert policy.meet(key(1)).verdict is Verdict.HIT


def test_a_quota_leaves_room_to_others() -> None:
    policy = MinIOPolicy(10)
    policy.set_quotas({"a": 6, "b": 4})
    assert [read(policy, key(n), "a") for n in range(8)].count(Verdict.ADMIT) == 6
    assert [read(policy, key(n), "b") for n in range(20, 28)].count(Verdict.ADMIT) == 4


def test_what_is_beyond_a_new_quota_goes_when_others_need_it() -> None:
    policy = MinIOPolicy(10)
    for number in range(10):
        read(policy, key(number), "a")
    policy.set_quotas({"a": 8, "b": 2})
    assert policy.held_of("a") == 10
    assert policy.meet(key(20), "b") == (Verdict.ADMIT, (key(9),))
    assert policy.meet(key(21), "b") == (Verdict.ADMIT, (key(8),))
    assert policy.meet(key(22), "b").verdict is Verdict.PASS
    assert policy.held_of("a") == 8


def test_the_room_of_a_data_set_without_clients_is_for_others() -> None:
    policy = MinIOPolicy(4)
    for number in range(4):
        read(policy, key(number), "old")
    assert policy.meet(key(10), "new").verdict is Verdict.PASS
    policy.note_clients("old", idle=True)
    assert read(policy, key(0), "old") is Verdict.HIT, "until somebody needs it"
    assert policy.meet(key(10, 3), "new").given_up == (key(3), key(2), key(1))
    assert key(0) in policy


def test_what_was_given_up_while_it_was_read_is_not_held() -> None:
    policy = MinIOPolicy(4)
    policy.meet(key(1))
    assert policy.drop() == (key(1),)
    assert not policy.note_read(key(1))
    assert policy.held_bytes == 0


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0)])
def test_a_cache_of_nothing_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MinIOPolicy(*sizes)


class Cache(RuleBasedStateMachine):
    """Against a model: the files as they are, and the versions that were read in."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = MinIOPolicy(20, largest=8)
        self.files: dict[int, Key] = {}
        self.read_in: set[Key] = set()
        self.reading: set[Key] = set()
        self.apart = False  # whether room has gone from one data set to another

    @rule(inode=st.integers(0, 9), size=st.integers(0, 10), version=st.integers(0, 3))
    def write(self, inode: int, size: int, version: int) -> None:
        self.files[inode] = key(inode, size, version)

    @rule(inode=st.integers(0, 9))
    def meet(self, inode: int) -> None:
        one = self.files.setdefault(inode, key(inode))
        data_set = "ab"[inode % 2]
        free = self.policy.capacity - self.policy.held_bytes
        meeting = self.policy.meet(one, data_set)
        for lost in meeting.given_up:
            changed = lost.file == one.file and lost != one
            assert changed or "ab"[lost.inode % 2] != data_set, "evicted within a data set"
            assert changed or self.apart
        self.read_in -= set(meeting.given_up)
        self.reading -= set(meeting.given_up)
        match meeting.verdict:
            case Verdict.HIT:
                assert one in self.read_in
            case Verdict.WAIT:
                assert one in self.reading
            case Verdict.ADMIT:
                assert one not in self.read_in | self.reading
                assert one.size <= 8
                self.reading.add(one)
            case Verdict.PASS:
                assert one not in self.read_in | self.reading
                assert not 0 < one.size <= min(8, free) or self.apart

    @rule(data=st.data())
    def end_reading(self, data: st.DataObject) -> None:
        if not self.reading:
            return
        one = data.draw(st.sampled_from(sorted(self.reading)))
        self.reading.discard(one)
        if data.draw(st.booleans()):
            assert self.policy.note_read(one)
            self.read_in.add(one)
        else:
            self.policy.abandon(one)

    @rule(quotas=st.tuples(st.none() | st.integers(0, 20), st.none() | st.integers(0, 20)))
    def divide(self, quotas: tuple[int | None, int | None]) -> None:
        self.apart = True
        self.policy.set_quotas(dict(zip("ab", quotas, strict=True)))

    @rule(data_set=st.sampled_from("ab"), idle=st.booleans())
    def leave(self, data_set: str, idle: bool) -> None:
        self.apart = True
        self.policy.note_clients(data_set, idle)

    @rule(data_set=st.sampled_from("ab"))
    def drop(self, data_set: str) -> None:
        dropped = set(self.policy.drop(data_set))
        self.read_in -= dropped
        self.reading -= dropped

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        self.policy.check_invariants()
        assert self.policy.held_bytes == sum(one.size for one in self.read_in | self.reading)
        for one in self.files.values():
            assert (one in self.policy) == (one in self.read_in)


TestCache = Cache.TestCase
