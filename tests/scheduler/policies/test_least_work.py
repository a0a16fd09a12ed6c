from __future__ import annotations

from penstock.scheduler.policies.least_work import LeastWork
from tests.scheduler.policies.rates import rates


def test_the_key_is_the_cpu_time_that_is_left() -> None:
    # 8 cores make a quarter of a step per second: 32 core-seconds a step, 1000 steps.
    assert LeastWork().key(rates()) == 1000 * 32_000


def test_the_key_does_not_depend_on_what_the_job_holds() -> None:
    policy = LeastWork()
    more = rates(data_milli_cpu=16_000, enqueue=0.5, throughput=0.5)
    assert policy.key(more) == policy.key(rates())


def test_before_the_first_worker_the_expected_gain_stands_in() -> None:
    fresh = rates(data_milli_cpu=0, enqueue=0.1, throughput=0.1, data_workers=0)
    assert LeastWork().key(fresh) == 1000 * 32_000


def test_growth_doubles() -> None:
    policy = LeastWork()
    assert [policy.most_per_interval(rates(data_workers=n)) for n in (0, 1, 2, 4)] == [1, 1, 2, 4]
