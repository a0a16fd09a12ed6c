"""From what programs say of their time follows who waits, and for what."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.data.cache.node.division import DIVIDE_SECONDS, Division
from penstock.data.cache.node.met import AGE_SECONDS, MetFiles
from penstock.data.cache.observed import HALF_SECONDS, LEAST_SECONDS, MEMORY_RATE, Observed
from penstock.data.cache.policy import Key

MB = 1_000_000


def said(
    *, memory: int = 0, storage: int = 0, rate: float = 50e6, elapsed: float, slack: float = 0.0
) -> dict[str, int]:
    """Of a program that reads so many bytes, those of storage at this rate."""
    return {
        "memory_bytes": memory,
        "memory_us": int(memory / MEMORY_RATE * 1e6),
        "storage_bytes": storage,
        "storage_us": int(storage / rate * 1e6),
        "elapsed_us": int(elapsed * 1e6),
        "slack_us": int(slack * 1e6),
    }


def observed(*all_said: dict[str, int], seconds: float = 10.0) -> Observed:
    one = Observed(0.0)
    for number, each in enumerate(all_said):
        one.add(f"job {number}", each)
    one.fade(seconds)
    return one


def test_who_waits_for_storage_most_of_its_time_would_be_that_much_faster() -> None:
    found = observed(said(storage=400 * MB, elapsed=10)).reading(800 * MB)
    assert found is not None
    assert found.storage_rate == pytest.approx(50e6)
    assert found.waiting(0) == pytest.approx(7.8 / 2.2, rel=0.01), "eight seconds of ten"
    assert found.waiting(800 * MB) == 0
    assert found.enough == 800 * MB
    assert found.jobs == pytest.approx(1, rel=0.01)


def test_who_has_time_left_besides_does_not_wait() -> None:
    """A worker that fetches half of its time, and is not asked for more in a third of it."""
    found = observed(said(storage=250 * MB, elapsed=10, slack=3)).reading(800 * MB)
    assert found is not None
    assert found.waiting(0) == 0
    assert found.enough == 0
    few = observed(said(storage=250 * MB, elapsed=10, slack=1)).reading(800 * MB)
    assert few is not None
    assert few.waiting(0) > 0


def test_what_was_hidden_by_hits_is_known_from_misses() -> None:
    """Half of its reads are hits; without them it would wait."""
    half = said(memory=200 * MB, storage=200 * MB, elapsed=10, slack=2)
    found = observed(half).reading(800 * MB)
    assert found is not None
    assert found.waiting(400 * MB) == 0
    assert found.waiting(0) > 0
    assert 0 < found.enough < 400 * MB


def test_two_jobs_count_twice_and_one_that_is_there_half_of_the_time_half() -> None:
    found = observed(*(said(storage=40 * MB, elapsed=each) for each in (10, 10, 5))).reading(MB)
    assert found is not None
    assert found.jobs == pytest.approx(2.5, rel=0.01)


def test_a_job_that_ended_counts_less_and_less() -> None:
    one = observed(said(storage=400 * MB, elapsed=10))
    first = one.reading(800 * MB)
    one.fade(10 + HALF_SECONDS)
    later = one.reading(800 * MB)
    assert first is not None
    assert later is not None
    assert later.storage_rate == pytest.approx(first.storage_rate)
    assert later.jobs < 0.1
    one.fade(20 * HALF_SECONDS)
    assert one.reading(800 * MB) is None


@pytest.mark.parametrize(
    "little", [said(storage=MB, elapsed=LEAST_SECONDS / 2), said(memory=MB, elapsed=10)]
)
def test_of_too_little_nothing_follows(little: dict[str, int]) -> None:
    assert observed(little).reading(MB) is None
    assert observed(said(storage=MB, elapsed=10)).reading(0) is None


amounts = st.fixed_dictionaries(
    {
        name: st.integers(0, 1 << 50)
        for name in ("memory_bytes", "memory_us", "storage_bytes", "storage_us", "elapsed_us")
    }
    | {"slack_us": st.integers(0, 1 << 50)}
)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), amounts), max_size=20),
    st.integers(1, 1 << 40),
    st.lists(st.floats(0, 1e5), min_size=1, max_size=4),
)
def test_whatever_programs_say_quotas_are_within_the_capacity(
    notes: list[tuple[str, str, dict[str, int]]], capacity: int, passing: list[float]
) -> None:
    division, now = Division(capacity, lambda _: 0), 0.0
    for path in "ab":
        division.meet(path, Key(1, 1, 1000, 0), now)
    for number, (path, job, each) in enumerate(notes):
        now += passing[number % len(passing)]
        division.note(path, job, each, now)
        quotas = division.divide(now)
        if quotas is not None:
            assert sum(quotas.values()) <= capacity
            assert min(quotas.values(), default=0) >= 0
    for path in "ab":
        report = division.report(path)
        assert report["quota_bytes"] is None or report["wanted_bytes"] is not None


def test_one_data_set_alone_has_no_quota_and_a_new_one_is_not_waited_for() -> None:
    held = {"a": 100 * MB, "b": 0}
    division = Division(100 * MB, lambda path: held[path])
    for number in range(100):
        key = Key(1, number, MB, 0)
        division.meet("a", key, 0)
        division.admit("a", key)
    division.note("a", "a job", said(storage=100 * MB, elapsed=10), 10)
    assert division.divide(10) == {}
    assert division.report("a")["why"] == "no other data set asks for the memory"
    assert division.divide(10 + DIVIDE_SECONDS / 2) is None
    for number in range(100, 200):
        division.meet("b", Key(1, number, MB, 0), 0)
    assert division.report("b")["why"].startswith("not known yet")
    division.note("b", "b job", said(storage=490 * MB, elapsed=10), 20)
    quotas = division.divide(20)
    assert quotas is not None
    assert quotas == {"a": 0, "b": pytest.approx(100 * MB, rel=0.01)}
    held["a"] = 0
    assert division.report("a")["why"] == "each byte spares others more waiting"


def test_a_data_set_that_nobody_reads_any_more_is_forgotten() -> None:
    held = {"a": 0}
    division = Division(100 * MB, lambda path: held[path])
    old, new = range(200), range(1000, 1050)
    for number in old:
        key = Key(1, number, MB, 0)
        division.meet("a", key, 0)
        if number < 100:
            division.admit("a", key)
            held["a"] += MB
    assert division.not_held(0) == pytest.approx(100 * MB, rel=0.02)
    assert division.report("a")["data_set_bytes"] == pytest.approx(200 * MB, rel=0.02)
    for now in (AGE_SECONDS / 2, AGE_SECONDS + 1):
        for number in new:
            division.meet("a", Key(1, number, MB, 0), now)
        assert division.not_held(now) == pytest.approx(150 * MB, rel=0.02)
    now = 2 * AGE_SECONDS + 2
    for number in new:
        assert not division.meet("a", Key(1, number, MB, 0), now), "it was met a while ago"
    assert division.not_held(now) == pytest.approx(50 * MB, rel=0.02)
    assert division.report("a")["data_set_bytes"] == pytest.approx(150 * MB, rel=0.02), "held, too"
    assert division.not_held(10 * AGE_SECONDS) == 0
    division.meet("a", Key(1, 1, MB, 0), now)
    division.forget("a")
    assert division.not_held(now) == 0


class Met(RuleBasedStateMachine):
    """Files that were met, against the sets of two generations."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.since = 0.0
        self.met = MetFiles(0.0)
        self.young: set[Key] = set()
        self.old: set[Key] = set()

    @rule(number=st.integers(0, 40))
    def meet(self, number: int) -> None:
        key = Key(1, number, 100 + number, 0)
        assert self.met.add(key) == (key not in self.young | self.old)
        self.young.add(key)

    @rule(passing=st.sampled_from([AGE_SECONDS / 3, AGE_SECONDS + 1, 3 * AGE_SECONDS]))
    def pass_time(self, passing: float) -> None:
        self.now += passing
        if self.met.age(self.now):
            self.old = self.young if self.now - self.since <= 2 * AGE_SECONDS else set()
            self.young = set()
            self.since = self.now
        else:
            assert self.now - self.since <= AGE_SECONDS

    @invariant()
    def counts_both(self) -> None:
        known = self.young | self.old
        assert self.met.count == pytest.approx(len(known), rel=0.01)
        expected = sum(key.length for key in known)
        assert self.met.total_bytes == pytest.approx(expected, rel=0.01)


TestMet = Met.TestCase
TestMet.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
