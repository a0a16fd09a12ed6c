"""Nothing may distort the first measurement."""

from __future__ import annotations

import pytest

from penstock.base.enums import Role
from penstock.brain.algorithms.sample import SampleParams, plan
from penstock.brain.planning import Limits, Plan, PlanReason
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of


def ask(
    worker: tuple[float, float], servers: list[tuple[float, float]], cores: int = 200
) -> Plan | None:
    samples = run_of(
        5, speed=10.0, workers=1, worker_cores=worker[0], worker_used=worker[1], servers=servers
    )
    plans = in_force_plan(1, worker[0], len(servers), servers[0][0])
    return plan(
        ps_history(samples, plans), ps_job(), Limits(milli_cpu=cores * 1000), SampleParams()
    )


def test_a_sound_measurement_needs_no_plan() -> None:
    assert ask((32, 2.5), [(32, 5.7)]) is None


def test_busy_servers_get_more_cpu_first() -> None:
    made = ask((16, 2.5), [(8, 7.6), (8, 2.0)])
    assert made is not None
    assert made.reason == PlanReason.SERVERS_SHORT_OF_CPU
    assert made.roles[Role.PS].milli_cpu == 16_000
    assert Role.WORKER not in made.roles


def test_a_busy_worker_gets_more_cpu() -> None:
    made = ask((8, 7.9), [(16, 5.0)])
    assert made is not None
    assert made.roles[Role.WORKER].milli_cpu == 16_000


@pytest.mark.parametrize(("cores", "size"), [(30, 11_000), (24, None)])
def test_growth_stays_within_the_quota(cores: int, size: int | None) -> None:
    made = ask((8, 2.0), [(8, 7.8), (8, 2.0)], cores)
    assert (made.roles[Role.PS].milli_cpu if made else None) == size


def test_the_largest_pod_cannot_grow() -> None:
    assert ask((4, 2.0), [(32, 31.0)]) is None
