"""The simulated truth agrees with the paper's tables and with itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.ps.jobs.model import PsConfig, residence, speed, think_seconds
from penstock.sim.ps.jobs.paper import PAPER_JOBS, WIDE_DEEP, XDEEPFM
from penstock.sim.ps.jobs.random_models import random_cases


def test_one_worker_is_as_fast_as_in_table_one() -> None:
    wide = speed(WIDE_DEEP, PsConfig(workers=(32.0,), servers=(32.0,)))
    assert wide.steps_per_second == pytest.approx(12.0)
    assert wide.worker_cores[0] == pytest.approx(2.5)
    assert sum(wide.server_cores) == pytest.approx(5.7)
    deep = speed(XDEEPFM, PsConfig(workers=(32.0,), servers=(32.0,)))
    assert deep.steps_per_second == pytest.approx(6.2)
    assert deep.worker_cores[0] == pytest.approx(19.4)
    assert sum(deep.server_cores) == pytest.approx(3.1)


@pytest.mark.parametrize(
    ("name", "config", "published"),
    [
        ("wide-deep", PAPER_JOBS["wide-deep"].tuned, 210.0),
        (
            "wide-deep",
            PsConfig(workers=(3.0,) * 24, servers=(16.0, 16.0, 24.0, 24.0, 16.0, 16.0, 16.0, 16.0)),
            258.0,
        ),
        ("xdeepfm", PAPER_JOBS["xdeepfm"].tuned, 47.8),
        ("xdeepfm", PsConfig(workers=(20.0,) * 10, servers=(16.0,) * 2), 56.0),
    ],
)
def test_published_speeds_are_met_within_two_percent(
    name: str, config: PsConfig, published: float
) -> None:
    reached = speed(PAPER_JOBS[name].case.model, config).steps_per_second
    assert reached == pytest.approx(published, rel=0.02)


@settings(max_examples=40, deadline=None)
@given(
    index=st.integers(0, 500),
    workers=st.integers(1, 60),
    cores=st.integers(1, 12),
    servers=st.lists(st.integers(1, 32), min_size=1, max_size=8),
)
def test_the_speed_is_a_fixed_point(
    index: int, workers: int, cores: int, servers: list[int]
) -> None:
    model = random_cases(1, index)[0].model
    config = PsConfig(workers=(float(cores),) * workers, servers=tuple(map(float, servers)))
    found = speed(model, config)
    reached = found.steps_per_second
    waits = [
        residence(model, model.update_core_seconds * share, size, reached)
        for share, size in zip(model.shares(len(servers)), config.servers, strict=True)
    ]
    step = think_seconds(model, float(cores), len(servers)) + max(waits)
    assert reached == pytest.approx(workers / step, rel=1e-6)
    assert all(used < size for used, size in zip(found.server_cores, config.servers, strict=True))


@settings(max_examples=25, deadline=None)
@given(index=st.integers(0, 500), rank=st.integers(0, 3))
def test_more_cores_never_slow_a_job(index: int, rank: int) -> None:
    model = random_cases(1, index)[0].model
    servers = [8.0, 8.0, 8.0, 8.0]
    before = speed(model, PsConfig(workers=(3.0,) * 10, servers=tuple(servers)))
    servers[rank] += 4
    after = speed(model, PsConfig(workers=(3.0,) * 10, servers=tuple(servers)))
    assert after.steps_per_second >= before.steps_per_second * (1 - 1e-9)


def test_a_slow_server_holds_up_every_worker() -> None:
    tuned = PAPER_JOBS["xdeepfm"].tuned
    slow = PsConfig(workers=tuned.workers, servers=tuned.servers, slow_servers={1: 0.25})
    assert speed(XDEEPFM, slow).steps_per_second < 0.5 * speed(XDEEPFM, tuned).steps_per_second


@pytest.mark.parametrize("servers", [1, 2, 7, 24])
def test_shares_add_up(servers: int) -> None:
    for case in random_cases(5, 3):
        assert math.fsum(case.model.shares(servers)) == pytest.approx(1)


def test_a_case_does_not_depend_on_how_many_are_drawn() -> None:
    assert random_cases(3, 7) == random_cases(9, 7)[:3]
    assert random_cases(3, 7) != random_cases(3, 8)


def test_questions_cost_something_however_small_they_are() -> None:
    dear = replace(WIDE_DEEP, asking_core_seconds=0.01, answering_core_seconds=0.02)
    assert dear.worker_work(8) == pytest.approx(WIDE_DEEP.worker_work(8) + 0.08)
    assert sum(dear.server_work(8)) == pytest.approx(sum(WIDE_DEEP.server_work(8)) + 0.16)
    config = PAPER_JOBS["wide-deep"].tuned
    assert speed(dear, config).steps_per_second < speed(WIDE_DEEP, config).steps_per_second


def test_with_quotas_waiting_is_hidden_behind_standing_still() -> None:
    machines = replace(WIDE_DEEP, compute_cores=1.0, io_seconds=0.3, queueing=0.0)
    quotas = replace(machines, bursts=True)
    large = (32.0,)
    for cores, hidden in ((1.0, False), (0.25, True)):
        config = PsConfig(workers=(cores,), servers=large)
        slow, quick = (speed(model, config).steps_per_second for model in (machines, quotas))
        assert (quick > 1.2 * slow) is hidden
    limited = speed(quotas, PsConfig(workers=(0.25,), servers=large))
    assert limited.worker_cores[0] == pytest.approx(0.25), "it uses all that it has"
    full = speed(quotas, PsConfig(workers=(9.0,) * 99, servers=(0.1,)))
    assert full.server_cores[0] == pytest.approx(0.1, rel=1e-6)
