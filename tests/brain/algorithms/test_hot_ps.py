"""Hot servers grow, the next hot ones with them, within the quota."""

from __future__ import annotations

from dataclasses import replace

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.hot_ps import HotPsParams, plan
from penstock.brain.planning import Limits, Plan, PlanReason
from penstock.brain.sizes import GIB
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of


def ask(
    used: list[float],
    *,
    params: HotPsParams | None = None,
    quota: int = 400,
    memory: dict[int, tuple[int, int]] | None = None,
    settled: float = NOW - 400,
    reason: str = "",
) -> Plan | None:
    """24 workers beside servers of 16 cores; one worker alone made them use 6 cores in all."""
    create = in_force_plan(1, 3, len(used), 16, at=NOW - 1000, settled=NOW - 900)
    wide = in_force_plan(24, 3, len(used), 16, stage=Stage.OPTIMIZE, at=NOW - 600, settled=settled)
    wide = replace(wide, reason=reason)
    alone = run_of(
        4,
        end=NOW - 800,
        speed=12.0,
        workers=1,
        worker_cores=3.0,
        worker_used=2.5,
        servers=[(16.0, 6.0 * own / sum(used)) for own in used],
    )
    now = run_of(
        5,
        speed=200.0,
        workers=24,
        worker_cores=3.0,
        worker_used=2.3,
        servers=[(16.0, own) for own in used],
        server_memory=memory,
    )
    limits = Limits(milli_cpu=quota * 1000)
    return plan(ps_history((*alone, *now), create, wide), ps_job(), limits, params or HotPsParams())


def test_cool_servers_are_left_alone() -> None:
    assert ask([10.0] * 8) is None


def test_a_hot_server_gets_what_all_workers_would_need_of_it() -> None:
    made = ask([8.0, 8.0, 15.0, 8.0, 8.0, 8.0, 8.0, 8.0])
    assert made is not None
    ranks = made.roles[Role.PS].ranks
    # 15 of 71 cores of 6 x 24 unhindered ones are 30.4.
    assert ranks[2].milli_cpu == 31_000
    assert all(own.milli_cpu > 16_000 for own in ranks.values() if own.milli_cpu)


def test_no_server_outgrows_a_pod() -> None:
    made = ask([4.0, 4.0, 15.9, 4.0])
    assert made is not None
    assert made.roles[Role.PS].ranks[2].milli_cpu == 32_000


def test_the_quota_holds_unless_told_otherwise() -> None:
    used = [8.0, 8.0, 15.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    assert ask(used, quota=200) is None
    assert ask(used, quota=200, params=HotPsParams(beyond_quota=True)) is not None
    made = ask(used, quota=204)
    assert made is not None
    assert made.roles[Role.PS].ranks[2].milli_cpu == 20_000


def test_servers_rest_between_changes() -> None:
    assert ask([8.0, 8.0, 15.0, 8.0], settled=NOW - 200) is None


def test_full_memory_grows_before_the_server_is_killed_for_it() -> None:
    made = ask([5.0] * 4, memory={1: (int(7.6 * GIB), 8 * GIB)}, settled=NOW - 200)
    assert made is not None
    assert made.roles[Role.PS].ranks[1].memory_bytes == 12 * GIB
    assert made.roles[Role.PS].ranks[1].milli_cpu is None


def test_servers_that_were_sized_for_a_plateau_limit_nothing() -> None:
    used = [10.0, 10.0, 10.0, 14.0]
    assert ask(used) is not None
    assert ask(used, reason=PlanReason.PLATEAU) is None
