"""Jobs whose plans are made anew together: better where that takes many changes, never worse."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.brain.pricing.exact import optimum
from penstock.brain.pricing.filling import Filling
from penstock.brain.pricing.greedy import admit
from penstock.brain.pricing.problem import Option, PricedJob, Resources, Room
from penstock.brain.pricing.regrouping import regroup
from tests.brain.pricing.jobs import cores, drawn


def job(name: str, *options: tuple[float, float]) -> PricedJob:
    """A job with options of such throughput and cost, of which each takes a core."""
    made = tuple(
        Option(
            name=f"{number}",
            throughput=throughput,
            resources=Resources(milli_cpu=1000),
            cost_per_hour=cost,
        )
        for number, (throughput, cost) in enumerate(options)
    )
    return PricedJob(name=name, options=made)


def filled(jobs: list[PricedJob], room: Room, chosen: list[int]) -> Filling:
    filling = Filling(jobs, room)
    filling.apply(list(enumerate(chosen)))
    return filling


def test_six_jobs_change_at_once() -> None:
    """Each change alone costs more, or makes too little work."""
    jobs = [job("dear", (5, 1), (10, 20)), *(job(f"{n}", (1, 1), (2, 2)) for n in range(5))]
    filling = filled(jobs, Room(work=15), [1, 0, 0, 0, 0, 0])
    regroup(filling)
    assert filling.chosen == [0, 1, 1, 1, 1, 1]
    assert (filling.work, filling.cost) == pytest.approx((15, 11))


def test_work_that_is_missing_is_made_first_whatever_it_costs() -> None:
    jobs = [job("dear", (5, 1), (10, 20)), job("other", (1, 1), (2, 2))]
    filling = filled(jobs, Room(work=12), [0, 0])
    regroup(filling)
    assert filling.chosen == [1, 1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [5, 24])
def test_a_plan_gets_better_and_still_fits(seed: int, count: int) -> None:
    jobs = drawn(np.random.default_rng(seed), count)
    room = Room(
        capacity=Resources(
            milli_cpu=14_000 * count, memory_bytes=28 * 2**30 * count, accelerators=2 * count
        ),
        quotas={"a": cores(9 * count)},
    )
    filling = Filling(jobs, room)
    admit(filling)
    before = filling.work
    running = set(filling.running())
    regroup(filling)
    assert filling.work > before
    assert set(filling.running()) == running
    assert all(
        own <= most
        for bound, used, _ in filling.bounds()
        for own, most in zip(used, bound.amounts(), strict=True)
    )
    held = [option.resources.amounts() for n in range(count) if (option := filling.option(n))]
    assert next(used for _, used, queue in filling.bounds() if queue is None) == [
        sum(column) for column in zip(*held, strict=True)
    ]
    if count == 5:
        best = optimum(jobs, room)
        assert best is not None
        assert filling.work == pytest.approx(best.work)
