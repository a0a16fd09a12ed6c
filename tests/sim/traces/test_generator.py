from __future__ import annotations

import numpy as np

from penstock.sim.traces.generator import generate_jobs, generate_nodes, generate_pods


def test_one_seed_gives_one_cluster_and_one_demand() -> None:
    def everything(seed: int) -> object:
        draw = np.random.default_rng(seed)
        return generate_nodes(20, draw), generate_pods(20, draw), generate_jobs(20, 3600.0, draw)

    assert everything(1) == everything(1)
    assert everything(1) != everything(2)


def test_gangs_are_powers_of_two_and_shares_are_parts_of_one() -> None:
    pods = generate_pods(2000, np.random.default_rng(0))
    assert {pod.accelerators for pod in pods} == {0, 1, 2, 4, 8}
    assert 0.2 < np.mean([pod.is_share for pod in pods]) < 0.4


def test_jobs_come_in_order_within_the_span() -> None:
    jobs = generate_jobs(500, 3600.0, np.random.default_rng(0))
    times = [job.submitted_seconds for job in jobs]
    assert times == sorted(times)
    assert min(times) >= 0
    assert times[-1] <= 3600
    assert min(job.duration_seconds for job in jobs) >= 60
