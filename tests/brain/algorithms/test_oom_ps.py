"""Servers out of memory become twice as many, or the one to blame larger, and only once."""

from __future__ import annotations

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.oom_ps import OomPsParams, plan
from penstock.brain.planning import Limits, Plan
from penstock.brain.sizes import GIB
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, out_of_memory, ps_history, ps_job, run_of

WORKERS = {"speed": 10.0, "workers": 4, "worker_cores": 3.0, "worker_used": 2.0}


def ask(
    held: int, *, servers_now: int = 4, plan_after: bool = False, limits: Limits | None = None
) -> Plan | None:
    """Server 1 of 4 ran out of 8 GiB a minute ago; the others held `held` bytes."""
    memory = dict.fromkeys(range(4), (held, 8 * GIB)) | {1: (8 * GIB, 8 * GIB)}
    before = run_of(4, end=NOW - 60, servers=[(8.0, 2.0)] * 4, server_memory=memory, **WORKERS)
    after = run_of(2, servers=[(8.0, 2.0)] * servers_now, **WORKERS)
    plans = [in_force_plan(4, 3, 4, 8, at=NOW - 400, settled=NOW - 300)]
    if plan_after:
        plans.append(in_force_plan(4, 3, 8, 8, stage=Stage.ADJUST, at=NOW - 30, settled=NOW))
    event = out_of_memory(Role.PS, 1, 8 * GIB, at=NOW - 50)
    history = ps_history((*before, *after), *plans, events=(event,))
    return plan(history, ps_job(), limits or Limits(), OomPsParams())


def test_twice_the_servers_hold_half_each() -> None:
    made = ask(held=7 * GIB)
    assert made is not None
    assert made.roles[Role.PS].replicas == 8


def test_a_server_far_above_the_mean_gets_more_memory_instead() -> None:
    made = ask(held=2 * GIB)
    assert made is not None
    assert made.roles[Role.PS].replicas is None
    assert made.roles[Role.PS].ranks[1].memory_bytes == 16 * GIB


def test_what_the_controller_has_doubled_is_not_doubled_again() -> None:
    assert ask(held=7 * GIB, servers_now=8) is None


def test_what_a_plan_has_changed_is_not_changed_again() -> None:
    assert ask(held=7 * GIB, plan_after=True) is None


def test_no_event_no_plan() -> None:
    samples = run_of(4, servers=[(8.0, 2.0)] * 4, **WORKERS)
    history = ps_history(samples, in_force_plan(4, 3, 4, 8))
    assert plan(history, ps_job(), Limits(), OomPsParams()) is None
