"""From what programs say of their time follows who waits, and for what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.cache.node.division import DIVIDE_SECONDS, Division
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
    division, now = Division(capacity), 0.0
    for path in "ab":
        division.meet(path, Key(1, 1, 1000, 0))
    for number, (path, job, each) in enumerate(notes):
        now += passing[number % len(passing)]
        division.note(path, job, each, now)
        quotas = division.divide(now)
        if quotas is not None:
            assert sum(quotas.values()) <= capacity
            assert min(quotas.values(), default=0) >= 0
    for path in "ab":
        report = division.report(path, 0)
        assert report["quota_bytes"] is None or report["wanted_bytes"] is not None


def test_one_data_set_alone_has_no_quota_and_a_new_one_is_not_waited_for() -> None:
    division = Division(100 * MB)
    for number in range(100):
        division.meet("a", Key(1, number, MB, 0))
    division.note("a", "a job", said(storage=100 * MB, elapsed=10), 10)
    assert division.divide(10) == {}
    assert division.report("a", 100 * MB)["why"] == "no other data set asks for the memory"
    assert division.divide(10 + DIVIDE_SECONDS / 2) is None
    for number in range(100, 200):
        division.meet("b", Key(1, number, MB, 0))
    assert division.report("b", 0)["why"].startswith("not known yet")
    division.note("b", "b job", said(storage=490 * MB, elapsed=10), 20)
    quotas = division.divide(20)
    assert quotas is not None
    assert quotas == {"a": 0, "b": pytest.approx(100 * MB, rel=0.01)}
    assert division.report("a", 0)["why"] == "each byte spares others more waiting"
