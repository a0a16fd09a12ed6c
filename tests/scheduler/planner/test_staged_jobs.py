"""Jobs of two stages, interval by interval, against a small model of a job and a controller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.enums import Role
from penstock.scheduler.model.decisions import Reason, WriteScale
from penstock.scheduler.model.job_view import read_job
from penstock.scheduler.model.signals import QueueSignals, signals
from penstock.scheduler.planner.planner import Planner, Settings
from penstock.scheduler.planner.preemption import GRACE_SECONDS
from penstock.scheduler.stage_tuning import MeasuredStage
from penstock.scheduler.tuning import IDEAL_RATIO
from tests.scheduler.planner.documents import Json, job, node, pod, unschedulable

START = 1_800_000_000.0
INTERVAL = 30.0
ROLES = {"dataWorker": "data-worker", "acceleratedDataWorker": "accelerated-data-worker"}
SINCE = "2027-01-15T08:00:00Z"  # START


class Life:
    """One job whose stages make so many batches a second for each worker; takes ``takes``."""

    def __init__(self, *nodes: Json, takes: float, each: tuple[float, float], **role: Any) -> None:
        self.planner = Planner(Settings())
        for document in nodes:
            self.planner.state.put_node(document)
        self.now, self.takes, self.each = START, takes, each
        self.counts = {"dataWorker": 0, "acceleratedDataWorker": role.get("minReplicas", 1)}
        stage = {"template": {"spec": pod("s", "2", 1, memory="4Gi")["spec"]}, **role}
        self.job = job("a", roles={"acceleratedDataWorker": stage})
        self.scales: list[WriteScale] = []
        self.made = 0
        self.tell()
        self.make("acceleratedDataWorker", self.counts["acceleratedDataWorker"])

    @property
    def workers(self) -> tuple[int, ...]:
        return tuple(self.counts.values())

    def tell(self) -> None:
        replicas = {role: {"desired": count} for role, count in self.counts.items()}
        self.planner.state.put_job({**self.job, "status": {"replicas": replicas}})

    def make(self, role: str, count: int) -> None:
        """The controller makes so many pods of a role; they go where the planner says."""
        there = self.planner.state.data_workers("uid-a", Role(role))
        for view in there[count:]:
            self.planner.state.remove_pod(view.uid)
        amounts = ("2", 1, "4Gi") if role == "acceleratedDataWorker" else ("1", 0, "2Gi")
        for rank in range(len(there), count):
            self.made += 1
            document = self.pod(role, rank, amounts, gated=True)
            self.planner.state.put_pod(document, self.now)
            for action in self.planner.place(self.now).actions:
                where = action.node  # type: ignore[union-attr]  # all are pins
                bound = self.pod(role, rank, amounts, on=where)
                self.planner.state.put_pod(bound, self.now)

    def pod(self, role: str, rank: int, amounts: tuple[str, int, str], **fields: Any) -> Json:
        cpu, gpus, memory = amounts
        return pod(
            f"{role}-{self.made}",
            cpu,
            gpus,
            memory=memory,
            job="a",
            role=ROLES[role],
            rank=rank,
            **fields,
        )

    def report(self) -> QueueSignals:
        able = [one * count for one, count in zip(self.each, self.workers, strict=True)]
        if not self.counts["dataWorker"]:  # the later stage does it as well
            able[0] = self.each[0]
        if not self.counts["acceleratedDataWorker"]:
            return QueueSignals(self.now, 100, self.takes / 4, self.takes / 4, self.takes)
        rate = min(self.takes, *able)
        stages = tuple(
            MeasuredStage(rate if count else 0.0, rate / one if count else 0.0)
            for one, count in zip(able, self.workers, strict=True)
        )
        return QueueSignals(self.now, 100, rate, rate, self.takes, stages=stages)

    def interval(self) -> list[WriteScale]:
        self.now += INTERVAL
        plan, _ = self.planner.allocate(self.now, {"uid-a": self.report()})
        written = [one for one in plan.actions if isinstance(one, WriteScale)]
        self.scales += written
        for scale in written:
            for role, target in scale.roles.items():
                self.counts[role] = target["replicas"]
                self.make(role, target["replicas"])
        self.tell()
        return written


def cluster(gpus: int = 16) -> tuple[Json, ...]:
    return node("cpu", "64"), node("gpu", "64", gpus)


def test_each_stage_gets_what_the_training_takes() -> None:
    life = Life(*cluster(), takes=80.0, each=(10.0, 20.0))
    for _ in range(12):
        life.interval()
    assert life.workers == (8, 4)
    assert not life.interval()
    assert {scale.reason for scale in life.scales} == {Reason.DATA_STALL}
    first = life.scales[0]
    assert first.roles["dataWorker"] == {
        "replicas": 1,
        "resources": {"cpu": "1", "memory": "2Gi"},
    }, "it is made of the training worker's template, whose size would be too much"
    [stage] = [one.roles for one in life.scales if "acceleratedDataWorker" in one.roles][:1]
    assert stage == {"acceleratedDataWorker": {"replicas": 4}}, "its template says its size"


def test_one_stage_changes_at_a_time() -> None:
    life = Life(*cluster(), takes=80.0, each=(10.0, 20.0))
    for _ in range(12):
        life.interval()
    assert all(len(scale.roles) == 1 for scale in life.scales)


def test_a_stage_gets_no_more_accelerators_than_there_are() -> None:
    life = Life(*cluster(gpus=3), takes=100.0, each=(50.0, 10.0))
    for _ in range(8):
        life.interval()
    assert life.workers[1] == 3
    memory = life.planner.memories["uid-a"]
    assert memory.stages is not None
    assert "there is no room" in memory.stages.why
    assert memory.waiting_since is not None


def test_what_nobody_waits_for_is_given_back_down_to_the_least() -> None:
    life = Life(*cluster(), takes=10.0, each=(10.0, 10.0), minReplicas=2)
    life.counts["acceleratedDataWorker"] = 6
    life.make("acceleratedDataWorker", 6)
    life.tell()
    for _ in range(6):
        life.interval()
    assert life.workers == (0, 2), "the training waits for nothing"
    assert life.scales[-1].reason is Reason.TUNED


def test_a_fixed_number_stays() -> None:
    life = Life(*cluster(), takes=80.0, each=(10.0, 20.0), replicas=2)
    life.counts["acceleratedDataWorker"] = 2
    life.make("acceleratedDataWorker", 2)
    life.tell()
    for _ in range(12):
        life.interval()
    assert life.workers == (5, 2), "what the slowest stage lets the other one do"


def test_it_goes_on_from_what_somebody_else_asked_for() -> None:
    life = Life(*cluster(), takes=80.0, each=(10.0, 20.0))
    for _ in range(12):
        life.interval()
    life.counts["acceleratedDataWorker"] = 3
    life.make("acceleratedDataWorker", 3)
    life.tell()
    life.now += 60
    for _ in range(4):
        life.interval()
    assert life.workers == (8, 4)


def test_a_report_of_before_all_workers_were_there_is_waited_for() -> None:
    life = Life(*cluster(), takes=80.0, each=(10.0, 20.0))
    for _ in range(12):
        life.interval()
    [first, *_] = life.planner.state.data_workers("uid-a", Role.ACCELERATED_DATA_WORKER)
    life.planner.state.remove_pod(first.uid)
    assert not life.interval()
    memory = life.planner.memories["uid-a"]
    assert memory.stages is not None
    assert memory.stages.why.startswith("wait: not all workers")


def test_one_that_made_room_for_a_gpu_pod_comes_back_when_it_can() -> None:
    life = Life(node("gpu", "16", 1), takes=80.0, each=(40.0, 80.0), minReplicas=0)
    life.counts["acceleratedDataWorker"] = 1
    life.make("acceleratedDataWorker", 1)
    life.tell()
    for _ in range(6):
        life.interval()
    assert life.workers == (2, 1)
    life.planner.state.put_pod(unschedulable(pod("train", "2", 1), SINCE), life.now)
    plan = life.planner.place(life.now + GRACE_SECONDS)
    [scale] = [one for one in plan.actions if isinstance(one, WriteScale)]
    assert scale.roles == {"acceleratedDataWorker": {"replicas": 0}}
    life.counts["acceleratedDataWorker"] = 0
    life.make("acceleratedDataWorker", 0)
    life.planner.state.put_pod(pod("train", "2", 1, on="gpu"), life.now)
    life.tell()
    for _ in range(15):
        life.interval()
    assert life.workers[1] == 0, "its accelerator is in use"
    life.planner.state.remove_pod("uid-train")
    for _ in range(3):
        life.interval()
    assert life.workers[1] == 1


def test_what_somebody_took_away_is_not_asked_for_again() -> None:
    life = Life(*cluster(), takes=80.0, each=(40.0, 80.0), minReplicas=0)
    life.counts["acceleratedDataWorker"] = 1
    life.make("acceleratedDataWorker", 1)
    life.tell()
    for _ in range(6):
        life.interval()
    life.counts["acceleratedDataWorker"] = 0
    life.make("acceleratedDataWorker", 0)
    life.tell()
    life.now += 60
    for _ in range(15):
        assert not any("acceleratedDataWorker" in one.roles for one in life.interval())


@given(
    takes=st.floats(1, 100),
    shares=st.tuples(st.floats(0.06, 2), st.floats(0.06, 2)),
    gpus=st.integers(1, 20),
)
@settings(max_examples=30, deadline=None)
def test_it_ends_with_what_each_stage_needs_as_far_as_there_is_room(
    takes: float, shares: tuple[float, float], gpus: int
) -> None:
    each = (takes * shares[0], takes * shares[1])
    life = Life(*cluster(gpus), takes=takes, each=each)
    for _ in range(20):
        for scale in life.interval():
            assert len(scale.roles) == 1
        assert life.workers[1] <= gpus
    report = life.report()
    most = min(1.0, each[1] * gpus / takes)
    assert report.throughput >= IDEAL_RATIO * most * takes * (1 - 1e-9)


def test_one_stage_is_none() -> None:
    said: dict[str, Any] = {
        "time_seconds": 1.0,
        "step": 1,
        "steps_per_second": 1.0,
        "enqueued": 1.0,
        "dequeued": 1.0,
        "ideal": 2.0,
        "wait_share": None,
    }
    one, two = MeasuredStage(1.0, 0.5), MeasuredStage(1.0, 1.0)
    for stages, expected in (((), ()), ((one,), ()), ((one, two), (one, two))):
        found = signals(**said, stages=stages)
        assert found is not None
        assert found.stages == expected


@pytest.mark.parametrize(
    ("role", "request_", "states_size", "bounds"),
    [
        (None, (2000, 2 << 30, 1), True, (64, 0)),
        ({"cpu": "3", "gpus": 1}, (3000, 1 << 30, 1), False, (64, 0)),
        (
            {"cpu": "3", "gpus": 1, "minReplicas": 1, "maxReplicas": 4},
            (3000, 1 << 30, 1),
            False,
            (4, 1),
        ),
        ({"cpu": "3", "gpus": 1, "replicas": 3}, (3000, 1 << 30, 1), False, (3, 3)),
    ],
)
def test_what_a_job_may_have(
    role: Json | None, request_: tuple[int, ...], states_size: bool, bounds: tuple[int, int]
) -> None:
    document = job("a")
    document["spec"]["replicaSpecs"]["worker"]["template"]["spec"] = pod("w", "8", 4)["spec"]
    if role is not None:
        template = {"spec": pod("s", role.pop("cpu"), role.pop("gpus"))["spec"]}
        document["spec"]["replicaSpecs"]["acceleratedDataWorker"] = {"template": template, **role}
    document["status"] = {"replicas": {"acceleratedDataWorker": {"desired": 2}}}
    found = read_job(document).accelerated
    assert found is not None
    asked = found.request
    assert (asked.milli_cpu, asked.memory_bytes, asked.accelerators) == request_
    assert (found.states_size, found.most, found.least) == (states_size, *bounds)
    assert found.desired == 2


def test_a_job_without_accelerators_can_have_none() -> None:
    document = job("a")
    document["spec"]["replicaSpecs"]["worker"]["template"]["spec"] = pod("w", "8")["spec"]
    assert read_job(document).accelerated is None
