"""Data workers that move nearer: when there is something to gain, and one at a time."""

from __future__ import annotations

import pytest

from penstock.scheduler.model.decisions import Pin, Plan, Reason, WriteScale
from penstock.scheduler.model.job_memory import Memory
from penstock.scheduler.model.signals import QueueSignals
from penstock.scheduler.placement.locality import MANY_BYTES_PER_SECOND
from penstock.scheduler.planner.nearness import LASTING_INTERVALS, PATIENCE_SECONDS, Nearness
from penstock.scheduler.planner.planner import Planner
from penstock.scheduler.policies.allocate import MOVE_PAUSE_SECONDS
from penstock.scheduler.tuning import Stage, Tuning
from tests.scheduler.planner.documents import Json, job, node, pod, unschedulable

NOW = 1_800_000_000.0
INTERVAL = 30.0
MUCH = {"uid-a": 2 * MANY_BYTES_PER_SECOND, "uid-b": 3 * MANY_BYTES_PER_SECOND}


class Moving:
    """Jobs whose training is on ``gpu``, and what is planned for them interval by interval."""

    def __init__(self, *documents: Json, jobs: str = "a") -> None:
        self.planner = Planner()
        self.jobs, self.now = jobs, NOW
        for name in jobs:
            self.planner.state.put_job(job(name))
        for document in documents:
            if "containers" in document["spec"]:
                self.planner.state.put_pod(document, NOW)
            else:
                self.planner.state.put_node(document)
        self.nearness = Nearness(self.planner.state, self.planner._placer)

    def intervals(self, count: int, sent: dict[str, float] | None = None) -> list[Plan]:
        plans = []
        for _ in range(count):
            self.now += INTERVAL
            settled = {f"uid-{name}" for name in self.jobs}
            plans.append(self.nearness.plan(self.now, settled, MUCH if sent is None else sent))
        return [one for one in plans if one.actions]


def training(name: str = "a") -> Json:
    return pod(f"w-{name}", "2", 1, job=name, role="worker", on="gpu")


def far(name: str = "a", rank: int = 0) -> Json:
    return pod(f"d-{name}-{rank}", "2", job=name, rank=rank, on="cpu")


NODES = (node("gpu", "8", 2), node("cpu", "8"))


def test_it_moves_where_its_job_trains_once_that_has_had_room_for_a_while() -> None:
    moving = Moving(*NODES, training(), far())
    assert not moving.intervals(LASTING_INTERVALS - 1)
    [plan] = moving.intervals(1)
    [scale] = plan.actions
    assert isinstance(scale, WriteScale)
    assert scale.roles == {
        "dataWorker": {"ranks": {"0": {"minIncarnation": 1, "avoidNodes": ["cpu"]}}}
    }
    assert scale.reason is Reason.NEARER
    assert plan.records[0].node == "gpu"
    successor = pod("d-a-0-1", "2", job="a", gated=True)
    moving.planner.state.put_pod(successor, moving.now)
    [pin] = moving.planner.pinner.plan(moving.now, MUCH).actions
    assert isinstance(pin, Pin)
    assert pin.node == "gpu", "the pinning brings it where it was to go"


def test_room_that_comes_and_goes_is_not_enough() -> None:
    moving = Moving(*NODES, training(), far())
    for _ in range(4):
        assert not moving.intervals(LASTING_INTERVALS - 1)
        moving.planner.state.put_pod(pod("other", "6", on="gpu"), moving.now)
        assert not moving.intervals(1)
        moving.planner.state.remove_pod("uid-other")


@pytest.mark.parametrize("sent", [{}, {"uid-a": MANY_BYTES_PER_SECOND / 2}])
def test_one_that_sends_little_stays(sent: dict[str, float]) -> None:
    assert not Moving(*NODES, training(), far()).intervals(10, sent)


def test_one_that_is_near_stays() -> None:
    near = pod("d-a-0", "2", job="a", on="gpu")
    assert not Moving(*NODES, training(), near).intervals(10)


def test_nobody_moves_before_all_of_the_job_are_ready() -> None:
    waiting = pod("d-a-1", "2", job="a", rank=1, gated=True)
    assert not Moving(*NODES, training(), far(), waiting).intervals(10)


def test_nobody_moves_while_a_gpu_pod_waits() -> None:
    waiting = unschedulable(pod("train", "64", 1), "2026-01-01T00:00:00Z")
    assert not Moving(*NODES, training(), far(), waiting).intervals(10)


def test_one_at_a_time_and_the_one_that_sends_most_first() -> None:
    moving = Moving(*NODES, training("a"), training("b"), far("a"), far("b"), jobs="ab")
    [plan] = moving.intervals(LASTING_INTERVALS)
    [scale] = plan.actions
    assert isinstance(scale, WriteScale)
    assert scale.job == "b"
    assert not moving.intervals(1), "the successor is not there yet"
    moving.planner.state.remove_pod("uid-d-b-0")
    there = pod("d-b-0-1", "2", job="b", on="gpu")
    there["metadata"]["labels"]["penstock.dev/incarnation"] = "1"
    moving.planner.state.put_pod(there, moving.now)
    [plan] = moving.intervals(1)
    assert [one.job for one in plan.actions if isinstance(one, WriteScale)] == ["a"]


def test_a_move_that_does_not_come_about_holds_up_no_other_for_long() -> None:
    moving = Moving(*NODES, training("a"), training("b"), far("a"), far("b"), jobs="ab")
    plans = moving.intervals(LASTING_INTERVALS + int(PATIENCE_SECONDS / INTERVAL))
    told = [one for plan in plans for one in plan.actions if isinstance(one, WriteScale)]
    assert [one.job for one in told] == ["b", "a"]


def test_a_job_moves_once_in_a_while() -> None:
    moving = Moving(*NODES, training(), far())
    plans = moving.intervals(LASTING_INTERVALS + int(MOVE_PAUSE_SECONDS / INTERVAL) - 1)
    assert len(plans) == 1
    assert len(moving.intervals(1)) == 1


@pytest.mark.parametrize("stage", [Stage.TUNED, Stage.DATA_WORKERS])
def test_the_planner_asks_for_it_where_a_job_is_not_being_tuned(stage: Stage) -> None:
    planner = Moving(*NODES, training(), far()).planner
    status = {"replicas": {"dataWorker": {"desired": 1}}}
    planner.state.put_job({**job("a"), "status": status})
    tuning = Tuning(stage, 8, data_worker_cores=2, data_workers=1, max_data_worker_cores=2)
    reasons = []
    for number in range(1, LASTING_INTERVALS + 1):
        planner.memories = {"uid-a": Memory(tuning)}
        now = NOW + number * INTERVAL
        found = QueueSignals(now, 10, 10.0, 10.0, 100.0, 2 * MANY_BYTES_PER_SECOND)
        plan, _ = planner.allocate(now, {"uid-a": found})
        reasons += [one.reason for one in plan.actions if isinstance(one, WriteScale)]
    assert (Reason.NEARER in reasons) == (stage is Stage.TUNED)
