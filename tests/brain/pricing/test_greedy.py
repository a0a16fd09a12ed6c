"""What many jobs get together: what pays most first, and nobody left without the least."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.brain.errors import PricingError
from penstock.brain.pricing.exact import optimum
from penstock.brain.pricing.greedy import allocate
from penstock.brain.pricing.problem import (
    Allocation,
    Option,
    PricedJob,
    Prices,
    Resources,
    Room,
    useful,
)
from tests.brain.pricing.jobs import amdahl, cores, drawn


def names(plan: Allocation) -> list[str | None]:
    return [one.option.name if one.option else None for one in plan.allotments]


def test_the_job_that_scales_better_gets_more() -> None:
    plan = allocate([amdahl("poor", 0.5), amdahl("good", 0.02)], Room(capacity=cores(40)))
    assert names(plan) == ["2", "8"]
    poor, good = plan.allotments
    assert poor.runner_up is not None
    assert poor.runner_up.name == "4"
    assert "the capacity of CPU" in poor.runner_up_why
    assert good.runner_up is not None
    assert "an hour less" in good.runner_up_why


def test_work_that_is_wanted_is_made_for_the_least_cost_and_no_more_is_taken() -> None:
    jobs = [amdahl("poor", 0.5), amdahl("good", 0.02)]
    plan = allocate(jobs, Room(work=4.5))
    assert plan.reached
    assert plan.work >= 4.5
    assert names(plan) == ["1", "4"]
    assert "the last that was bought" in plan.allotments[1].runner_up_why


def test_work_that_cannot_be_made_is_said_to_be_out_of_reach() -> None:
    plan = allocate([amdahl("only", 0.5)], Room(capacity=cores(8), work=5))
    assert not plan.reached
    assert names(plan) == ["2"]


def test_no_job_grows_before_each_has_its_least() -> None:
    jobs = [amdahl("good", 0.0, weight=100.0), *(amdahl(f"poor-{n}", 0.5) for n in range(9))]
    plan = allocate(jobs, Room(capacity=cores(44)))
    assert not plan.waiting
    assert names(plan) == ["2"] + ["1"] * 9


def test_the_higher_priority_is_let_in_first_and_who_waits_is_told_why() -> None:
    jobs = [amdahl("early", 0.1), amdahl("urgent", 0.1, priority=1)]
    plan = allocate(jobs, Room(capacity=cores(5)))
    assert [job.name for job in plan.waiting] == ["early"]
    assert plan.allotments[0].why == "it waits: 1, its least, does not fit into the capacity of CPU"


def test_a_quota_holds_one_queue_and_a_budget_all() -> None:
    jobs = [amdahl("one", 0.0, queue="a"), amdahl("two", 0.0, queue="b")]
    plan = allocate(jobs, Room(quotas={"a": cores(9)}))
    assert names(plan) == ["2", "8"]
    assert "the quota of CPU of a" in plan.allotments[0].runner_up_why
    spent = allocate(jobs, Room(cost_per_hour=1.0))
    assert spent.cost_per_hour <= 1.0 < spent.cost_per_hour + 2 * 0.152
    assert any("the budget" in one.runner_up_why for one in spent.allotments)


def test_a_resource_that_runs_out_is_kept_for_those_who_make_most_of_it() -> None:
    """By money alone, jobs without accelerators take all cores and the accelerators stand idle."""
    cheap = [amdahl(f"cheap-{n}", 0.0, weight=1.0) for n in range(6)]
    dear = [amdahl(f"dear-{n}", 0.0, accelerators=1, weight=10.0) for n in range(3)]
    room = Room(capacity=Resources(milli_cpu=120_000, memory_bytes=10**15, accelerators=24))
    plan = allocate([*cheap, *dear], room)
    assert names(plan)[6:] == ["8", "8", "8"]


def test_small_cases_are_within_three_percent_of_the_optimum() -> None:
    worst = 0.0
    for case in range(12):
        jobs = drawn(np.random.default_rng(case), 5)
        room = Room(
            capacity=Resources(milli_cpu=90_000, memory_bytes=180 * 2**30, accelerators=9),
            quotas={"a": cores(60)},
        )
        best = optimum(jobs, room)
        assert best is not None
        found = allocate(jobs, room)
        worst = max(worst, 1 - found.work / best.work)
        wanted = Room(capacity=room.capacity, quotas=room.quotas, work=0.9 * best.work)
        least, cheap = optimum(jobs, wanted), allocate(jobs, wanted)
        assert least is not None
        assert cheap.reached
        worst = max(worst, cheap.cost_per_hour / least.cost_per_hour - 1)
        assert found.work <= best.work * (1 + 1e-9)
        assert cheap.cost_per_hour >= least.cost_per_hour * (1 - 1e-9)
    assert worst <= 0.03


def test_the_optimum_is_for_few_and_none_where_the_work_cannot_be_made() -> None:
    assert optimum([amdahl("only", 0.5)], Room(work=100)) is None
    with pytest.raises(PricingError, match=r"30 jobs have .* combinations of options; at most"):
        optimum([amdahl(f"job-{n}", 0.1) for n in range(30)], Room())


def test_without_prices_that_differ_the_most_work_is_what_counts() -> None:
    free = Prices(core_hour=0, gib_hour=0, accelerator_hour=0)
    options = [
        Option(
            name=str(count),
            throughput=float(count),
            resources=(taken := Resources(milli_cpu=1000 * count)),
            cost_per_hour=taken.cost_per_hour(free),
        )
        for count in (1, 2, 4)
    ]
    job = PricedJob(name="free", options=tuple(options))
    assert names(allocate([job, job], Room(capacity=cores(6)))) in (["4", "2"], ["2", "4"])


def test_an_option_that_another_beats_in_everything_is_left_out() -> None:
    good = amdahl("job", 0.0).options
    worse = Option(name="worse", throughput=1.5, resources=good[2].resources, cost_per_hour=1.0)
    assert [option.name for option in useful((worse, *good))] == ["1", "2", "4", "8"]


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_what_is_no_price_is_refused(value: float) -> None:
    with pytest.raises(PricingError, match=r"prices\.gib_hour = .*: must be a number of at least"):
        Prices(core_hour=0.1, gib_hour=value, accelerator_hour=1)


def test_a_job_without_options_or_progress_is_refused() -> None:
    with pytest.raises(PricingError, match="job none: options: at least one"):
        PricedJob(name="none", options=())
    still = Option(name="0", throughput=0.0, resources=Resources(), cost_per_hour=0.0)
    with pytest.raises(PricingError, match=r"job still: option 0: throughput = 0\.0"):
        PricedJob(name="still", options=(still,))
    with pytest.raises(PricingError, match=r"job light: weight = 0\.0"):
        amdahl("light", 0.0, weight=0.0)
