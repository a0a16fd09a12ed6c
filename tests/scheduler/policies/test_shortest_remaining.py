from __future__ import annotations

from penstock.scheduler.policies.shortest_remaining import AGEING_SECONDS, ShortestRemaining
from tests.scheduler.policies.rates import rates


def test_the_key_is_remaining_time_times_cores() -> None:
    assert ShortestRemaining().key(rates()) == 1000 / (0.25 + 0.25) * 16_000


def test_waiting_halves_the_key_and_overtakes_shorter_jobs() -> None:
    policy = ShortestRemaining()
    aged = policy.key(rates(waiting_seconds=AGEING_SECONDS))
    assert aged == policy.key(rates()) / 2
    assert aged < policy.key(rates(remaining_steps=600.0))


def test_a_job_without_speed_comes_last_but_has_a_key() -> None:
    policy = ShortestRemaining()
    assert policy.key(rates(throughput=0.0, gain=0.0)) > policy.key(rates())
