"""The jobs of a week: what their users ask for, and what that makes of them."""

from __future__ import annotations

from dataclasses import replace

from penstock.base.enums import Role
from penstock.sim.ps.jobs.model import speed
from penstock.sim.week.world.assumptions import WEEK, Assumptions
from penstock.sim.week.world.jobs import BUSY, JobClass, class_of, generate

ASSUMED = Assumptions()


def test_a_seed_gives_the_same_jobs_again() -> None:
    assert generate(12, 3, ASSUMED) == generate(12, 3, ASSUMED)
    assert generate(12, 3, ASSUMED) != generate(12, 4, ASSUMED)


def test_requests_keep_to_the_limits_of_pod_and_job() -> None:
    for job in generate(30, 0, ASSUMED):
        assert 0 <= job.arrival <= WEEK
        assert max(*job.asked.workers, *job.asked.servers) <= ASSUMED.pod_cores
        assert job.asked.cores <= ASSUMED.job_cores
        assert set(job.asked_bytes) == {Role.WORKER, Role.PS}


def test_the_class_is_what_the_run_shows() -> None:
    jobs = generate(40, 1, ASSUMED)
    assert {job.kind for job in jobs} >= {JobClass.PLAIN, JobClass.HOT}
    for job in jobs:
        reached = speed(job.model, job.asked)
        assert class_of(job.asked, reached) is job.kind
        busiest = max(
            used / cores
            for used, cores in zip(reached.server_cores, job.asked.servers, strict=True)
        )
        assert (busiest > BUSY) == (job.kind is not JobClass.PLAIN)


def test_an_assumption_changes_what_it_is_about() -> None:
    broken = generate(12, 0, replace(ASSUMED, broken_share=1.0))
    assert all(job.broken_at is not None and job.broken_at <= job.steps for job in broken)
    assert all(job.broken_at is None for job in generate(12, 0, replace(ASSUMED, broken_share=0.0)))
