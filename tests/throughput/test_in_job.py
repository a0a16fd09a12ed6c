"""A running job's profile, and the decision about its data workers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.throughput.decision.in_job import as_seen, decide_in_job, waits_for_storage
from penstock.throughput.limits.capacity import bounds
from penstock.throughput.observations.running_job import Interval, Making, profile_of
from tests.throughput.programs import a_profile, profiles


def interval(**changes) -> Interval:
    """Two local workers of 110 ms a batch for a training that would take one in 22 ms."""
    plain = Interval(
        seconds=30.0,
        taken=545,
        waited_seconds=18.0,
        cpu_seconds=6.0,
        received_bytes=0,
        batch_bytes=1e6,
        cores=4,
        workers=2,
        local=Making(545, 60.0, 58.0, 1.0, 0),
    )
    return replace(plain, **changes)


def test_a_job_whose_workers_are_too_few_is_promised_what_the_step_allows() -> None:
    profile = profile_of("a", [interval()])
    assert profile is not None
    assert profile.step.value == pytest.approx(0.022, rel=0.01)
    assert abs(profile.model_error) < 0.1
    decision = decide_in_job(profile, 8)
    assert decision.data_workers == 3
    assert decision.promised.rate == pytest.approx(45.4, rel=0.03)
    assert decision.promised.low < 45 < decision.promised.high
    assert decision.without == pytest.approx(18.17, rel=0.01)
    assert decision.runner_up


def test_causes_are_what_the_makers_did_with_their_time() -> None:
    profile = profile_of("a", [interval(local=Making(545, 60.0, 30.0, 12.0, 0))])
    assert profile is not None
    assert profile.causes == pytest.approx(
        {"fetch": 0.6 * 18 / 60, "preparation": 0.3, "too few cores": 0.12}
    )
    assert sum(profile.causes.values()) == pytest.approx(profile.stalled)


def test_a_job_that_waits_for_storage_is_not_helped_by_more_that_wait() -> None:
    reads = Making(545, 60.0, 12.0, 0.0, 545 * 4e6)
    profile = profile_of("a", [interval(local=reads)])
    assert profile is not None
    assert waits_for_storage(profile)
    decision = decide_in_job(profile, 8)
    assert (decision.data_workers, decision.waits_for_storage) == (0, True)
    assert "storage, not for CPU" in decision.why


def test_waiting_for_a_service_that_reads_no_storage_is_hidden_by_more_makers() -> None:
    profile = profile_of("a", [interval(local=Making(545, 60.0, 12.0, 0.0, 0))])
    assert profile is not None
    assert not waits_for_storage(profile)
    assert decide_in_job(profile, 8).data_workers > 0


def test_few_bytes_in_a_long_time_are_latency_and_not_a_full_storage() -> None:
    reads = Making(545, 60.0, 12.0, 0.0, 545 * 1e5)
    profile = profile_of("a", [interval(local=reads)])
    assert profile is not None
    assert profile.storage is not None
    assert not waits_for_storage(profile)
    assert decide_in_job(profile, 8).data_workers > 0


def test_a_job_that_does_not_wait_gets_none() -> None:
    profile = profile_of("a", [interval(waited_seconds=0.3)])
    assert profile is not None
    decision = decide_in_job(profile, 8)
    assert decision.data_workers == 0
    assert "nothing to gain" in decision.why


def test_of_several_processes_the_one_that_waits_most_counts_and_numbers_are_of_all() -> None:
    calm = interval(waited_seconds=2.0)
    profile = profile_of("a", [calm, interval(), calm])
    assert profile is not None
    assert (profile.processes, profile.stalled) == (3, 0.6)
    decision = decide_in_job(profile, 30)
    assert decision.data_workers == 9
    assert decision.without == pytest.approx(3 * 18.17, rel=0.01)
    assert decide_in_job(profile, 7).data_workers <= 7


def crowded(waited: float) -> Interval:
    """One core for a step of 10.5 ms, and a worker whose batches take 7.1 ms, by themselves."""
    made = Making(2430, 2430 * 0.0087, 2430 * 0.0071, 2430 * 0.0016, 0)
    return interval(
        taken=2430, waited_seconds=waited, cpu_seconds=2.0, cores=1, workers=1, local=made
    )


def test_a_wait_that_no_cost_explains_is_a_cost_of_its_own() -> None:
    profile = profile_of("a", [crowded(4.4)])
    assert profile is not None
    assert profile.model_error > 0.1
    found = as_seen(profile)
    assert min(bounds(found, found.resources).values()) == pytest.approx(81, rel=0.01)
    decision = decide_in_job(profile, 1)
    assert decision.data_workers == 1
    assert decision.without == pytest.approx(81, rel=0.01)
    assert decision.promised.rate == pytest.approx(95, rel=0.03)


def test_costs_that_explain_the_rate_are_as_measured() -> None:
    for one in (crowded(0.5), interval()):
        profile = profile_of("a", [one])
        assert profile is not None
        assert as_seen(profile) is profile


def test_what_says_too_little_gives_no_profile() -> None:
    assert profile_of("a", []) is None
    assert profile_of("a", [interval(taken=3)]) is None
    assert profile_of("a", [interval(batch_bytes=0)]) is None
    assert profile_of("a", [interval(local=Making())]) is None


def test_it_is_known_how_fast_data_workers_are_where_both_make_batches() -> None:
    both = interval(data_workers=1, local=Making(300, 33.0, 33.0), remote=Making(245, 54.0, 54.0))
    profile = profile_of("a", [both])
    assert profile is not None
    assert profile.resources.data_worker_speed == pytest.approx(0.5, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(profiles(), st.integers(0, 16))
def test_a_decision_keeps_within_what_it_may_have_and_promises_no_less(profile, most):
    decision = decide_in_job(profile, most)
    assert 0 <= decision.data_workers <= most
    assert decision.cores == 1
    if decision.data_workers:
        assert decision.gain >= 0.0999
    assert decision.promised.low <= decision.promised.rate * (1 + 1e-9)
    assert decision.why


@settings(max_examples=80, deadline=None)
@given(
    st.floats(1, 60),
    st.integers(0, 2000),
    st.floats(0, 1),
    st.floats(0, 200),
    st.integers(0, 8),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_no_counters_of_a_program_break_it(seconds, taken, waited, cpu, workers, busy, blocked):
    made = Making(taken, seconds, seconds * busy, seconds * (1 - busy) * blocked, 0)
    seen = interval(
        seconds=seconds,
        taken=taken,
        waited_seconds=seconds * waited,
        cpu_seconds=cpu,
        workers=workers,
        local=made,
    )
    profile = profile_of("a", [seen])
    if profile is not None:
        decide_in_job(profile, 4)


def test_the_plain_profile_of_the_profiler_is_decided_about_as_well() -> None:
    assert decide_in_job(a_profile(), 4).without > 0


def test_a_program_that_makes_its_batches_itself_is_given_makers() -> None:
    made = Making(122, 19.1, 4.6, 0.2, 0)
    seen = interval(
        taken=122, waited_seconds=19.2, workers=0, cores=2, local=Making(), in_line=made
    )
    profile = profile_of("a", [seen])
    assert profile is not None
    decision = decide_in_job(profile, 8)
    assert decision.data_workers >= 2
    assert decision.gain > 1.5
