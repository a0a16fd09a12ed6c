"""Generated users over-provide as the paper found; plans from history do not."""

from __future__ import annotations

from penstock.sim.ps.create import NOW, compare
from penstock.sim.ps.jobs.past_jobs import generate


def test_the_generator_is_the_papers_cluster() -> None:
    jobs = generate(1500, 3, now=NOW)
    assert jobs == generate(1500, 3, now=NOW)
    below_half = [
        sum(of.milli_cpu * of.replicas for of in job.asked.values())
        > 2 * sum(need.milli_cpu for need in job.needs.values())
        for job in jobs
    ]
    assert sum(below_half) / len(jobs) > 0.8
    short = sum(bool(job.out_of_memory) for job in jobs) / len(jobs)
    assert 0.03 < short < 0.08


def test_plans_from_history_give_far_less_and_fail_no_more_often() -> None:
    sizes, by = compare(800, 100, 5)
    user, planned = sizes["user"], sizes["history_create"]
    assert planned.median_cpu_over < 0.5 * user.median_cpu_over
    assert planned.median_memory_over < 0.5 * user.median_memory_over
    assert planned.oom_rate <= 0.08
    assert sum(by.values()) == 100
