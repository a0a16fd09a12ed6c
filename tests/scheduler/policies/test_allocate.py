from __future__ import annotations

import math

import pytest

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.errors import UnknownPolicyError
from penstock.scheduler.policies.allocate import allocate, rank
from penstock.scheduler.policies.fair import Fair
from penstock.scheduler.policies.least_work import LeastWork
from penstock.scheduler.policies.registry import ALLOCATION_POLICY_NAMES, make_allocation_policy
from penstock.scheduler.policies.shortest_remaining import ShortestRemaining
from tests.scheduler.policies.rates import rates


class Room:
    """Room for that many data workers, and who asked for it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.asked: list[str] = []

    def __call__(self, job: JobRates) -> bool:
        self.asked.append(job.job)
        self.workers -= 1
        return self.workers >= 0


def test_the_policy_says_who_comes_first_and_each_job_gets_one() -> None:
    jobs = [
        rates("long", remaining_steps=9000.0),
        rates("short"),
        rates("next", remaining_steps=2e3),
    ]
    room = Room(2)
    decided = allocate(jobs, ShortestRemaining(), room)
    assert room.asked == ["short", "next", "long"]
    assert decided.grow == {"short": 1, "next": 1}
    assert decided.shrink == {}


@pytest.mark.parametrize(("enqueue", "wants"), [(0.94, True), (0.95, False), (1.5, False)])
def test_only_starving_jobs_are_candidates(enqueue: float, wants: bool) -> None:
    assert bool(allocate([rates(enqueue=enqueue)], Fair(), Room(9)).grow) is wants


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("field", ["enqueue", "throughput", "remaining_steps", "gain"])
def test_a_job_that_reports_nonsense_is_left_alone(field: str, value: float) -> None:
    jobs = [rates("sick", **{field: value}), rates("sound")]
    decided = allocate(jobs, ShortestRemaining(), Room(9))
    assert decided.grow == {"sound": 1}
    unusable = rank(jobs, ShortestRemaining()).unusable
    assert unusable[0][0] == "sick"
    assert field in unusable[0][1]


def test_ties_go_by_name_so_that_a_run_can_be_repeated() -> None:
    room = Room(0)
    allocate([rates("b"), rates("a"), rates("c")], Fair(), room)
    assert room.asked == ["a", "b", "c"]


def test_workers_are_taken_back_for_a_job_with_much_less_work() -> None:
    jobs = [rates("short", remaining_steps=10.0), rates("long", data_workers=4)]
    decided = allocate(jobs, LeastWork(), Room(0))
    assert decided.grow == {}
    assert decided.shrink == {"long": 1}


def test_a_job_may_give_its_last_worker_but_a_resting_job_gives_none() -> None:
    short = rates("short", remaining_steps=10.0)
    last = [short, rates("long", data_workers=1)]
    assert allocate(last, LeastWork(), Room(0)).shrink == {"long": 1}
    resting = [short, rates("long", data_workers=4)]
    assert allocate(resting, LeastWork(), Room(0), resting={"long"}).shrink == {}


def test_about_equal_jobs_do_not_pass_workers_to_and_fro() -> None:
    jobs = [rates("a", remaining_steps=960.0), rates("b", data_workers=4)]
    assert allocate(jobs, LeastWork(), Room(0)).shrink == {}


def test_the_paper_s_policies_take_nothing_back() -> None:
    jobs = [rates("short", remaining_steps=10.0), rates("long", data_workers=4)]
    assert allocate(jobs, ShortestRemaining(), Room(0)).shrink == {}


def test_a_doubling_job_takes_back_as_many_as_it_may_get() -> None:
    jobs = [rates("short", remaining_steps=10.0, data_workers=3), rates("long", data_workers=9)]
    assert allocate(jobs, LeastWork(), Room(0)).shrink == {"long": 3}


def test_policies_go_by_name() -> None:
    for name in ALLOCATION_POLICY_NAMES:
        assert make_allocation_policy(name).name == name
    with pytest.raises(UnknownPolicyError, match="there are Fair, MaxThroughput"):
        make_allocation_policy("fair")
