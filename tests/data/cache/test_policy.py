"""What a cache keeps: misses are 1 - x in every epoch, within its bytes, and nothing stale."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.data.cache.policy import Key, Lot, MinIOPolicy, Verdict


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


def test_what_nobody_has_a_right_to_is_for_all() -> None:
    policy = MinIOPolicy(10)
    policy.set_quotas({"a": 2, "b": 4})
    assert [read(policy, key(n), "new") for n in range(8)].count(Verdict.ADMIT) == 4
    assert [read(policy, key(n), "a") for n in range(20, 28)].count(Verdict.ADMIT) == 2
    assert [read(policy, key(n), "b") for n in range(30, 38)].count(Verdict.ADMIT) == 4


def test_what_is_beyond_a_new_quota_stays_until_others_need_it() -> None:
    policy = MinIOPolicy(10)
    for number in range(10):
        read(policy, key(number), "a")
    policy.set_quotas({"a": 7, "b": 3})
    assert policy.held_of("a") == 10
    assert read(policy, key(0), "a") is Verdict.HIT
    lots = [Lot("a", True, 1, held=4, memory=4), Lot("a", True, 0, held=2, memory=3)]
    assert policy.lots_to_give(1, "a", lots) == []
    assert policy.lots_to_give(1, "new", lots) == [], "it has no right to any"
    assert policy.lots_to_give(3, "b", lots) == [lots[1]], "four are more than a has too many"
    assert policy.lots_to_give(3, "b", lots[:1]) == []
    policy.give_up([key(8), key(9)])
    assert read(policy, key(9), "a") is Verdict.PASS, "it is for b"
    assert read(policy, key(20), "b") is Verdict.ADMIT
    policy.check_invariants()


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
        self.quotas: dict[str, int] = {}
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
            assert changed, "nothing makes room by itself"
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

    @rule(quotas=st.tuples(st.none() | st.integers(0, 10), st.none() | st.integers(0, 10)))
    def divide(self, quotas: tuple[int | None, int | None]) -> None:
        self.apart = True
        self.quotas = {name: one for name, one in zip("ab", quotas, strict=True) if one is not None}
        held = self.policy.held_bytes
        self.policy.set_quotas(self.quotas)
        assert self.policy.held_bytes == held, "quotas alone give up nothing"

    @rule(data_set=st.sampled_from("ab"), size=st.integers(1, 8), data=st.data())
    def make_room(self, data_set: str, size: int, data: st.DataObject) -> None:
        """As the owner of memory does whose parts have up to three files."""
        inside, lots = {}, []
        for other in "ab":
            rest = sorted(self.policy.keys_of(other))
            while rest:
                count = data.draw(st.integers(1, 3))
                part, rest = rest[:count], rest[count:]
                held = sum(one.size for one in part)
                lots.append(Lot(other, True, len(lots), held, held + data.draw(st.integers(0, 2))))
                inside[lots[-1]] = part
        before = {name: self.policy.held_of(name) for name in "ab"}
        chosen = self.policy.lots_to_give(size, data_set, lots)
        for lot in chosen:
            self.policy.give_up(inside[lot])
            self.read_in -= set(inside[lot])
        if chosen:
            other = "ba"["ab".index(data_set)]
            assert before[data_set] + size <= self.quotas[data_set]
            assert self.policy.held_of(data_set) == before[data_set]
            assert self.policy.held_of(other) >= self.quotas[other]
            assert sum(lot.memory for lot in chosen) >= size

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
