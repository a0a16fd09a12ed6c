from __future__ import annotations

from penstock.scheduler.policies.max_throughput import MaxThroughput
from tests.scheduler.policies.rates import rates


def test_the_key_is_relative_gain_per_core_times_accelerators() -> None:
    job = rates(gain=0.2, ideal_throughput=0.8, next_milli_cpu=4000, accelerators=2)
    assert MaxThroughput().key(job) == -(0.2 / 0.8) / 4000 * 2


def test_a_job_that_gains_more_per_core_comes_first() -> None:
    policy = MaxThroughput()
    assert policy.key(rates(gain=0.3)) < policy.key(rates(gain=0.2))
    assert policy.key(rates(accelerators=8)) < policy.key(rates())


def test_no_ideal_speed_is_no_division_by_zero() -> None:
    assert MaxThroughput().key(rates(ideal_throughput=0.0, gain=0.0)) == 0
