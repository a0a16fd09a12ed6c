"""Nothing within the quota beats the oracle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from penstock.sim.ps.jobs.model import PsConfig, speed
from penstock.sim.ps.jobs.oracle import exhaustive, well_tuned
from penstock.sim.ps.jobs.random_models import PsCase, random_cases


@pytest.mark.parametrize("index", range(6))
def test_the_oracle_keeps_the_quota_and_beats_random_configurations(index: int) -> None:
    case = random_cases(6, 21)[index]
    best = exhaustive(case)
    assert best.config.cores <= case.cores
    assert max(best.config.servers) <= case.pod_cores
    assert best.steps_per_second >= well_tuned(case).steps_per_second * (1 - 1e-6)
    rng = np.random.default_rng(index)
    for _ in range(200):
        servers = tuple(float(c) for c in rng.integers(1, case.pod_cores + 1, rng.integers(1, 9)))
        cores = float(rng.integers(1, 9))
        count = int(min((case.cores - sum(servers)) // cores, case.most_workers))
        if count >= 1:
            config = PsConfig(workers=(cores,) * count, servers=servers)
            assert speed(case.model, config).steps_per_second <= best.steps_per_second * (1 + 1e-6)


def test_on_a_small_quota_it_agrees_with_trying_everything() -> None:
    small = random_cases(1, 4)[0]
    case = PsCase(model=small.model, cores=12, pod_cores=6, most_workers=6)
    top = 0.0
    for count in range(1, 7):
        for cores in range(1, 7):
            for servers in range(1, 5):
                for sizes in itertools.product(range(1, 7), repeat=servers):
                    if count * cores + sum(sizes) <= case.cores:
                        config = PsConfig(
                            workers=(float(cores),) * count, servers=tuple(map(float, sizes))
                        )
                        top = max(top, speed(case.model, config).steps_per_second)
    assert exhaustive(case).steps_per_second >= top * (1 - 1e-5)
