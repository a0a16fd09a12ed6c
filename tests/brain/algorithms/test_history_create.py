"""The first plan of a job like others that have finished."""

from __future__ import annotations

import pytest

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.algorithms.history_create import HistoryCreateParams, plan
from penstock.brain.planning import Limits, PastJob, Plan, RoleSpec, Signature
from penstock.brain.sizes import GIB
from tests.brain.jobs import DAY, applied, history, job, past, usage

PARAMS = HistoryCreateParams()
ALICE = Signature(model="wide-deep", dataset="criteo", user="alice")
BOB = Signature(model="wide-deep", dataset="criteo", user="bob")


def made(past_jobs: tuple[PastJob, ...], limits: Limits | None = None) -> Plan:
    answer = plan(history(past_jobs=past_jobs), job(signature=ALICE), limits or Limits(), PARAMS)
    assert answer is not None
    return answer


def jobs(count: int, signature: Signature, prefix: str = "p", **fields: object) -> list[PastJob]:
    # Each test names its own fields.
    return [past(f"{prefix}{n}", signature, **fields) for n in range(count)]  # type: ignore[arg-type]


def test_nothing_similar_is_no_plan() -> None:
    stranger = Signature(model="x", dataset="y", user="z")
    found = history(past_jobs=tuple(jobs(5, stranger)))
    assert plan(found, job(signature=ALICE), Limits(), PARAMS) is None


def test_unknown_parts_of_a_signature_match_nothing() -> None:
    found = history(past_jobs=tuple(jobs(5, Signature())))
    assert plan(found, job(signature=Signature()), Limits(), PARAMS) is None


def test_sizes_are_what_was_used_plus_a_margin() -> None:
    answer = made(tuple(jobs(4, ALICE, worker=usage(3, each_milli_cpu=2000, memory_bytes=GIB))))
    worker = answer.roles[Role.WORKER]
    assert worker.replicas == 3
    assert worker.milli_cpu == 2300
    assert GIB < (worker.memory_bytes or 0) <= 1.3 * GIB
    assert set(answer.evidence.past_jobs) == {"p0", "p1", "p2", "p3"}


def test_the_most_specific_level_with_enough_jobs_decides() -> None:
    own = jobs(3, ALICE, worker=usage(5))
    others = jobs(20, BOB, prefix="b", worker=usage(9))
    assert made((*own, *others)).roles[Role.WORKER].replicas == 5
    assert made((*own[:1], *others)).roles[Role.WORKER].replicas == 9


def test_too_few_everywhere_still_uses_the_most_specific() -> None:
    assert made(tuple(jobs(1, ALICE, worker=usage(5)))).roles[Role.WORKER].replicas == 5


@pytest.mark.parametrize("spoilt", [{"age": 8 * DAY}, {"age": -DAY}, {"succeeded": False}])
def test_old_future_and_failed_jobs_do_not_count(spoilt: dict[str, object]) -> None:
    found = history(past_jobs=tuple(jobs(5, ALICE, **spoilt)))
    assert plan(found, job(signature=ALICE), Limits(), PARAMS) is None


def test_other_strategies_do_not_count() -> None:
    found = history(past_jobs=tuple(jobs(5, ALICE, strategy=Strategy.LOCAL)))
    assert plan(found, job(signature=ALICE), Limits(), PARAMS) is None


def test_wild_jobs_do_not_move_the_plan() -> None:
    tame = jobs(7, ALICE, worker=usage(4, each_milli_cpu=2000))
    wild = jobs(3, ALICE, prefix="w", worker=usage(400, each_milli_cpu=30_000))
    worker = made((*tame, *wild)).roles[Role.WORKER]
    assert worker.replicas == 4
    assert worker.milli_cpu == 2300


def test_spread_widens_the_margin() -> None:
    spread = [
        past(f"p{n}", ALICE, worker=usage(each_milli_cpu=2000 + 200 * n, memory_bytes=GIB))
        for n in range(-3, 4)
    ]
    assert (made(tuple(spread)).roles[Role.WORKER].milli_cpu or 0) > 2600


def test_running_out_of_memory_is_not_repeated() -> None:
    fine = jobs(5, ALICE, worker=usage(memory_bytes=GIB))
    grown = past(
        "oom",
        ALICE,
        worker=usage(memory_bytes=4 * GIB),
        out_of_memory=frozenset({Role.WORKER}),
    )
    assert (made((*fine, grown)).roles[Role.WORKER].memory_bytes or 0) >= 4.8 * GIB


def test_servers_carry_the_cpu_that_all_used() -> None:
    servers = usage(8, each_milli_cpu=10_000, hottest_milli_cpu=14_000, memory_bytes=4 * GIB)
    found = history(past_jobs=tuple(jobs(4, ALICE, strategy=Strategy.PARAMETER_SERVER, ps=servers)))
    answer = plan(found, job(Strategy.PARAMETER_SERVER, signature=ALICE), Limits(), PARAMS)
    assert answer is not None
    server = answer.roles[Role.PS]
    assert server.milli_cpu == 16_100
    assert (server.replicas or 0) * 16_100 >= 88_000
    assert (server.replicas or 0) * (server.memory_bytes or 0) >= 32 * GIB


def test_the_quota_takes_workers_away() -> None:
    past_jobs = tuple(jobs(4, ALICE, worker=usage(10, each_milli_cpu=2000)))
    assert made(past_jobs, Limits(milli_cpu=10_000)).roles[Role.WORKER].replicas == 4


def test_bounds_of_the_spec_hold() -> None:
    found = history(past_jobs=tuple(jobs(4, ALICE, worker=usage(10))))
    answer = plan(
        found, job(worker=RoleSpec(minimum=2, maximum=6), signature=ALICE), Limits(), PARAMS
    )
    assert answer is not None
    assert answer.roles[Role.WORKER].replicas == 6


def test_a_job_with_a_plan_gets_no_other() -> None:
    before = history(
        plans=(applied(stage=Stage.CREATE, workers=1),), past_jobs=tuple(jobs(5, ALICE))
    )
    assert plan(before, job(signature=ALICE), Limits(), PARAMS) is None
