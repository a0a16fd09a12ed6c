from __future__ import annotations

from penstock.scheduler.policies.fair import Fair
from tests.scheduler.policies.rates import rates


def test_the_key_is_relative_speed_with_the_next_worker() -> None:
    assert Fair().key(rates(throughput=0.2, gain=0.1, ideal_throughput=0.5)) == (0.2 + 0.1) / 0.5


def test_the_slowest_job_comes_first_whatever_its_size() -> None:
    policy = Fair()
    slow = rates(throughput=0.1, remaining_steps=1e9)
    assert policy.key(slow) < policy.key(rates(remaining_steps=1.0))
