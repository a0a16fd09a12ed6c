"""Several workers out of memory are a pattern; one is the controller's business."""

from __future__ import annotations

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.oom_worker import OomWorkerParams, plan
from penstock.brain.planning import JobEvent, Limits, Plan
from penstock.brain.sizes import GIB
from tests.brain.jobs import applied, job
from tests.brain.psjobs import out_of_memory, ps_history


def ask(*events: JobEvent, limits: Limits | None = None) -> Plan | None:
    history = ps_history((), applied(stage=Stage.OPTIMIZE, workers=4), events=events)
    return plan(history, job(), limits or Limits(), OomWorkerParams())


def test_one_rank_is_left_to_the_controller() -> None:
    assert ask(out_of_memory(Role.WORKER, 1, GIB), out_of_memory(Role.WORKER, 1, 2 * GIB)) is None


def test_several_ranks_give_all_workers_more() -> None:
    made = ask(out_of_memory(Role.WORKER, 1, GIB), out_of_memory(Role.WORKER, 2, GIB))
    assert made is not None
    assert made.roles[Role.WORKER].memory_bytes == 2 * GIB
    assert made.stage is Stage.OPTIMIZE


def test_a_pod_can_have_no_more_than_a_node() -> None:
    events = [out_of_memory(Role.WORKER, rank, 3 * GIB) for rank in (1, 2)]
    made = ask(*events, limits=Limits(pod_memory_bytes=4 * GIB))
    assert made is not None
    assert made.roles[Role.WORKER].memory_bytes == 4 * GIB


def test_what_they_have_already_is_not_planned_again() -> None:
    made = ask(out_of_memory(Role.WORKER, 1, GIB), out_of_memory(Role.WORKER, 2, GIB))
    assert made is not None
    again = ps_history(
        (),
        applied(stage=Stage.OPTIMIZE, workers=4),
        type(applied(stage=Stage.OPTIMIZE))(
            applied_seconds=0, settled_seconds=0, roles=made.roles, stage=made.stage
        ),
        events=(out_of_memory(Role.WORKER, 1, GIB), out_of_memory(Role.WORKER, 2, GIB)),
    )
    assert plan(again, job(), Limits(), OomWorkerParams()) is None
