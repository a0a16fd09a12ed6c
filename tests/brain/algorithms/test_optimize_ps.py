"""DLRover's rule gives its Table 1, servers first and workers after."""

from __future__ import annotations

import pytest

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.optimize_ps import OptimizePsParams, plan
from penstock.brain.planning import AppliedPlan, Limits, PlanReason
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of

LIMITS = Limits(milli_cpu=200_000)
PARAMS = OptimizePsParams()
WIDE_DEEP = (12.0, 2.5, 5.7, 8, 24, 3)
XDEEPFM = (6.2, 19.4, 3.1, 2, 8, 20)


@pytest.mark.parametrize("model", [WIDE_DEEP, XDEEPFM], ids=["wide-deep", "xdeepfm"])
def test_table_one(model: tuple[float, float, float, int, int, int]) -> None:
    speed, worker_used, servers_used, servers, workers, cores = model
    create = in_force_plan(1, 32, 1, 32, at=NOW - 900, settled=NOW - 800)
    sampled = run_of(
        5,
        end=NOW - 700,
        speed=speed,
        workers=1,
        worker_cores=32.0,
        worker_used=worker_used,
        servers=[(32.0, servers_used)],
    )
    first = plan(ps_history(sampled, create, now=NOW - 700), ps_job(), LIMITS, PARAMS)
    assert first is not None
    assert first.reason == PlanReason.SERVERS_FIRST
    assert (first.roles[Role.PS].replicas, first.roles[Role.PS].milli_cpu) == (servers, 16_000)
    applied = AppliedPlan(
        applied_seconds=NOW - 700, settled_seconds=NOW - 100, roles=first.roles, stage=first.stage
    )
    again = run_of(
        5,
        speed=speed,
        workers=1,
        worker_cores=32.0,
        worker_used=worker_used,
        servers=[(16.0, servers_used / servers)] * servers,
    )
    second = plan(ps_history((*sampled, *again), create, applied), ps_job(), LIMITS, PARAMS)
    assert second is not None
    assert second.stage is Stage.OPTIMIZE
    worker = second.roles[Role.WORKER]
    assert (worker.replicas, worker.milli_cpu) == (workers, cores * 1000)
    assert Role.PS not in second.roles
    done = AppliedPlan(
        applied_seconds=NOW, settled_seconds=NOW + 120, roles=second.roles, stage=second.stage
    )
    full = run_of(
        5,
        end=NOW + 220,
        speed=speed * workers,
        workers=workers,
        worker_cores=float(cores),
        worker_used=worker_used,
        servers=[(16.0, 12.0)] * servers,
    )
    after = ps_history((*sampled, *again, *full), create, applied, done, now=NOW + 220)
    assert plan(after, ps_job(), LIMITS, PARAMS) is None, "the stage is over"


def test_without_a_quota_there_is_no_rule() -> None:
    samples = run_of(
        5, speed=5.0, workers=1, worker_cores=8.0, worker_used=2.0, servers=[(8.0, 1.0)]
    )
    history = ps_history(samples, in_force_plan(1, 8, 1, 8))
    assert plan(history, ps_job(), Limits(), PARAMS) is None
