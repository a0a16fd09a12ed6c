"""A worker whose memory grows towards its limit gets more before it is killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.algorithms.oom_worker import OomWorkerParams, plan
from penstock.brain.planning import History, Limits, Plan, RankSample, Sample
from penstock.brain.sizes import GIB
from tests.brain.jobs import NOW, applied, job

LEAK = [0.5 + 0.04 * index for index in range(10)]
STEADY = [0.8] * 10


def ask(
    shares: Mapping[int, Sequence[float]],
    strategy: Strategy = Strategy.ALL_REDUCE,
    limits: Limits | None = None,
    params: OomWorkerParams | None = None,
) -> Plan | None:
    """Shares of 2 GiB that each rank used, oldest first, 15 s apart."""
    count = len(next(iter(shares.values())))
    samples = tuple(
        Sample(
            time_seconds=NOW - 15 * (count - 1 - index),
            step=index,
            steps_per_second=1.0,
            roles={
                Role.WORKER: {
                    rank: RankSample(
                        milli_cpu=500,
                        memory_bytes=int(used[index] * 2 * GIB),
                        memory_limit_bytes=2 * GIB,
                    )
                    for rank, used in shares.items()
                }
            },
        )
        for index in range(count)
    )
    history = History(
        now_seconds=NOW, samples=samples, plans=(applied(stage=Stage.OPTIMIZE, workers=2),)
    )
    return plan(history, job(strategy), limits or Limits(), params or OomWorkerParams())


def test_a_leak_gets_more_before_the_kill_and_only_there() -> None:
    made = ask({0: STEADY, 1: LEAK})
    assert made is not None
    ranks = made.roles[Role.WORKER].ranks
    assert {rank: own.memory_bytes for rank, own in ranks.items()} == {1: 4 * GIB}
    assert made.evidence.figures["seconds_left"] == pytest.approx(52.5, rel=0.01)
    assert "workers 1 will run out of memory" in made.message


@pytest.mark.parametrize(
    "used",
    [
        STEADY,
        [0.1 + 0.04 * index for index in range(10)],  # far from the limit
        [0.9 - 0.8 * 0.5**index for index in range(10)],  # a cache that fills up
        [0.80, 0.84, 0.79, 0.83, 0.80, 0.84, 0.79, 0.83, 0.80, 0.85],  # up and down
        [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.4, 0.6, 0.8, 0.85],  # a new process: too few samples
    ],
)
def test_what_is_no_leak_near_its_limit_gets_no_plan(used: list[float]) -> None:
    assert ask({0: used}) is None


def test_a_job_of_one_pod_is_not_stopped_for_a_forecast() -> None:
    assert ask({0: LEAK}, Strategy.LOCAL) is None


def test_a_node_that_has_no_more_gives_no_plan_and_the_forecast_can_be_switched_off() -> None:
    assert ask({0: LEAK}, limits=Limits(pod_memory_bytes=2 * GIB)) is None
    assert ask({0: LEAK}, params=OomWorkerParams(forecast_seconds=0)) is None
