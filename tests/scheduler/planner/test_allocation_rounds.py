"""The allocation, interval by interval, against a small model of a job."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.scheduler.model.decisions import Reason, WriteScale
from penstock.scheduler.model.job_memory import Memory
from penstock.scheduler.model.signals import QueueSignals, signals
from penstock.scheduler.planner.planner import Planner, Settings
from penstock.scheduler.tuning import Predicted, Stage, Tuning
from tests.scheduler.planner.documents import Json, job, node, pod

START = 1_800_000_000.0
INTERVAL = 30.0


class Life:
    """Jobs that train as fast as their data comes, and a controller that obeys at once."""

    def __init__(self, *nodes: Json, **settings: Any) -> None:
        self.planner = Planner(Settings(**settings))
        for document in nodes:
            self.planner.state.put_node(document)
        self.now = START
        self.jobs: dict[str, Json] = {}
        self.ideal: dict[str, float] = {}
        self.per_core: dict[str, float] = {}
        self.data: dict[str, tuple[int, int]] = {}
        self.scales: list[WriteScale] = []
        self.obeys = True

    def add(self, name: str, *, ideal: float = 40.0, per_core: float = 10.0, **spec: Any) -> None:
        self.jobs[name] = job(name, **spec)
        self.ideal[name], self.per_core[name] = ideal, per_core
        self.data[name] = (0, 0)
        self.planner.state.put_job(self.jobs[name])

    def report(self, name: str) -> QueueSignals:
        workers, cores = self.data[name]
        rate = min(self.ideal[name], self.per_core[name] * max(workers * cores, 1))
        return QueueSignals(self.now, 100, rate, rate, self.ideal[name])

    def interval(self, **reports: QueueSignals) -> list[WriteScale]:
        self.now += INTERVAL
        found = {f"uid-{name}": reports.get(name) or self.report(name) for name in self.jobs}
        plan, _ = self.planner.allocate(self.now, found)
        written = [one for one in plan.actions if isinstance(one, WriteScale)]
        self.scales.extend(written)
        if self.obeys:
            for scale in written:
                self.obey(scale)
        return written

    def obey(self, scale: WriteScale) -> None:
        target = scale.roles.get("dataWorker")
        if target is None:
            return
        count = target.get("replicas", self.data[scale.job][0])
        cores = int(target.get("resources", {}).get("cpu", self.data[scale.job][1]))
        for rank in range(max(count, self.data[scale.job][0])):
            uid = f"uid-{scale.job}-{rank}"
            if rank >= count:
                self.planner.state.remove_pod(uid)
                continue
            document = pod(
                f"{scale.job}-{rank}",
                str(cores),
                job=scale.job,
                rank=rank,
                gated=True,
                memory="2Gi",
            )
            self.planner.state.put_pod(document, self.now)
        for action in self.planner.place(self.now).actions:
            bound = pod(
                action.view.name,
                str(cores),
                job=scale.job,
                rank=action.view.rank,  # type: ignore[union-attr]  # the actions here are all pins
                on=action.node,  # type: ignore[union-attr]  # the actions here are all pins
                memory="2Gi",
            )
            self.planner.state.put_pod(bound, self.now)
        self.data[scale.job] = (count, cores)
        document = self.jobs[scale.job]
        document["status"] = {"replicas": {"dataWorker": {"desired": count}}}
        self.planner.state.put_job(document)

    def tuning(self, name: str) -> Any:
        return self.planner.memories[f"uid-{name}"].tuning


@pytest.fixture
def life() -> Life:
    return Life(node("cpu", "64"))


def test_a_job_that_waits_for_data_gets_one_worker_per_interval_until_its_queue_is_full(
    life: Life,
) -> None:
    life.add("a", ideal=80.0, per_core=10.0, roles={"dataWorker": _role(cpu="2")})
    counts = [(life.interval(), life.data["a"])[1] for _ in range(8)]
    assert counts[:6] == [(1, 1), (1, 2), (2, 2), (3, 2), (4, 2), (4, 2)]
    assert life.tuning("a").stage is Stage.TUNED
    assert not life.interval()
    assert {scale.reason for scale in life.scales} == {Reason.DATA_STALL}


def _role(cpu: str, **fields: Any) -> Json:
    return {"template": {"spec": pod("d", cpu)["spec"]}, **fields}


def test_a_job_that_does_not_wait_gets_none(life: Life) -> None:
    life.add("a", ideal=10.0, per_core=10.0)
    assert not any(life.interval() for _ in range(5))


def test_one_that_always_wants_them_gets_the_first_without_waiting(life: Life) -> None:
    life.add("a", ideal=10.0, per_core=10.0, input={"offload": "Always"})
    [scale] = life.interval()
    assert scale.roles["dataWorker"]["replicas"] == 1


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"input": {"offload": "Never"}}, "Never"),
        ({"suspend": True}, "suspended"),
        ({"managedBy": "x.org/y"}, "another"),
        ({"roles": {"dataWorker": _role("2", replicas=3)}}, "fixes"),
    ],
)
def test_a_job_that_is_decided_about_elsewhere_is_left_alone(
    life: Life, spec: dict[str, Any], why: str
) -> None:
    life.add("a", **spec)
    life.now += INTERVAL
    plan, outcome = life.planner.allocate(life.now, {"uid-a": life.report("a")})
    assert not plan.actions
    assert why in outcome.left_alone["uid-a"]


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_rates_that_are_no_numbers_change_nothing_and_harm_nobody(life: Life, rate: float) -> None:
    life.add("bad")
    life.add("good")
    written = life.interval(bad=QueueSignals(life.now + INTERVAL, 1, rate, rate, 40.0))
    assert [scale.job for scale in written] == ["good"]
    _, outcome = life.planner.allocate(
        life.now + 1, {"uid-bad": QueueSignals(life.now + 1, 1, 1.0, rate, 40.0)}
    )
    assert "must be a finite number" in outcome.left_alone["uid-bad"]


def test_what_was_measured_before_a_data_worker_was_ready_says_nothing_of_it(life: Life) -> None:
    life.add("a", ideal=80.0, per_core=10.0, roles={"dataWorker": _role("1")})
    life.interval()
    late = datetime.fromtimestamp(life.now + INTERVAL - 5, UTC)
    document = pod("a-0", "1", job="a", on="cpu", memory="2Gi")
    document["status"]["conditions"][0]["lastTransitionTime"] = late.isoformat()
    life.planner.state.put_pod(document, life.now)
    assert not life.interval()
    assert life.interval(), "the next report covers it"


def test_what_a_training_worker_can_spare_is_remembered_while_nothing_new_is_reported() -> None:
    life = Life(node("cpu", "64"), tunes_training=True)
    life.add("a", ideal=10.0, per_core=10.0, input={"offload": "Always"})
    life.interval()
    life.interval()
    life.planner.allocate(life.now + 1, {})
    assert life.planner._standings["uid-a"].surplus_milli_cpu == 1000


def test_a_report_is_used_once(life: Life) -> None:
    life.add("a")
    report = life.report("a")
    assert life.interval(a=report)
    assert not life.interval(a=report)


def test_nothing_is_asked_for_where_there_is_no_room() -> None:
    life = Life(node("cpu", "2"))
    life.add("a", ideal=80.0, per_core=10.0, roles={"dataWorker": _role("1")})
    for _ in range(8):
        life.interval()
    assert life.data["a"] == (2, 1)
    assert life.tuning("a").why == "it waits: no room"
    assert not life.planner.state.snapshot.reservations, "what was promised was only promised"


def test_a_fragment_is_room_for_a_smaller_data_worker_but_not_for_growing_one() -> None:
    life = Life(node("cpu", "3"))
    life.add("a", ideal=800.0, per_core=10.0, roles={"dataWorker": _role("2")})
    life.interval()
    life.interval()
    assert life.data["a"] == (1, 2)
    life.obeys = False
    [scale] = life.interval()
    assert scale.roles["dataWorker"]["replicas"] == 2, "one core is left for the second"


def test_no_more_than_the_spec_allows(life: Life) -> None:
    life.add("a", ideal=800.0, roles={"dataWorker": _role("1", maxReplicas=2)})
    for _ in range(8):
        life.interval()
    assert life.data["a"] == (2, 1)


def test_data_workers_that_do_not_help_are_taken_away_again(life: Life) -> None:
    life.add("a", ideal=40.0, per_core=10.0, roles={"dataWorker": _role("1")})
    life.interval()
    for _ in range(16):
        report = life.report("a")
        slow = QueueSignals(report.time_seconds + INTERVAL, 100, 1.0, 1.0, 40.0)
        written = life.interval(a=slow)
        if written and written[-1].reason is Reason.FELL_BACK:
            break
    assert life.data["a"][0] == 0
    assert life.tuning("a").stage is Stage.FALLEN_BACK


def test_a_new_planner_goes_on_with_the_workers_that_are_there(life: Life) -> None:
    life.add("a", ideal=80.0, roles={"dataWorker": _role("2")})
    for _ in range(3):
        life.interval()
    assert life.data["a"] == (2, 2)
    fresh = Planner()
    fresh.state.put_node(node("cpu", "64"))
    for rank in range(2):
        fresh.state.put_pod(
            pod(f"a-{rank}", "2", job="a", rank=rank, on="cpu", memory="2Gi"), life.now
        )
    fresh.state.put_job(life.jobs["a"])
    life.planner = fresh
    life.interval()
    assert life.data["a"] == (3, 2)


def test_a_number_that_somebody_else_asked_for_is_respected(life: Life) -> None:
    life.add("a", ideal=400.0, roles={"dataWorker": _role("1")})
    for _ in range(4):
        life.interval()
    life.jobs["a"]["status"] = {"replicas": {"dataWorker": {"desired": 0}}}
    life.planner.state.put_job(life.jobs["a"])
    before = len(life.scales)
    life.now += 60
    for _ in range(9):
        life.interval()
    assert len(life.scales) == before, "it rests for five minutes"


def test_what_somebody_asked_for_is_not_given_back_on_the_word_of_a_model(life: Life) -> None:
    life.add("a", ideal=20.0, per_core=10.0, roles={"dataWorker": _role("1")})
    for _ in range(4):
        life.interval()
    assert life.data["a"] == (2, 1)
    life.jobs["a"]["status"] = {"replicas": {"dataWorker": {"desired": 3}}}
    life.planner.state.put_job(life.jobs["a"])
    life.now += 60
    before = len(life.scales)
    for _ in range(8):
        enough = replace(life.report("a"), predicted=Predicted(1, 1, 2.0, why="one does"))
        life.interval(a=replace(enough, time_seconds=life.now + INTERVAL))
    assert life.tuning("a").data_workers == 3
    assert len(life.scales) == before


def test_the_training_worker_is_resized_only_where_that_was_chosen() -> None:
    life = Life(node("cpu", "64"), tunes_training=True)
    life.add("a", ideal=10.0, per_core=10.0, input={"offload": "Always"})
    life.interval()
    [scale] = life.interval()
    assert scale.roles == {"worker": {"resources": {"cpu": "7"}}}
    assert life.planner._standings["uid-a"].surplus_milli_cpu == 1000


@pytest.mark.parametrize(
    ("gpus", "cpu", "grows"),
    [(1, "12", True), (2, "12", False), (1, "8", False)],
    ids=["room", "an accelerator is free", "no core is"],
)
def test_a_busy_training_worker_grows_where_its_node_has_cores_to_spare(
    gpus: int, cpu: str, grows: bool
) -> None:
    life = Life(node("cpu", "64"), node("gpu", cpu, gpus), tunes_training=True)
    life.add("a", ideal=80.0, per_core=10.0, roles={"dataWorker": _role("1", minReplicas=2)})
    life.planner.state.put_pod(pod("w", "8", 1, job="a", role="worker", on="gpu"), life.now)
    two = {"dataWorker": {"replicas": 2, "resources": {"cpu": "1"}}}
    life.obey(WriteScale("uid-a", "default", "a", two, Reason.TUNED, ""))
    tuning = Tuning(Stage.DATA_WORKERS, 8, 1, 2, 1, baseline=5.0, before=10.0)
    life.planner.memories = {"uid-a": Memory(tuning)}
    found = QueueSignals(life.now + INTERVAL, 9, 16.0, 16.0, 80.0, training_cores_used=7.9)
    written = life.interval(a=found)
    asked = [one.roles["worker"] for one in written if "worker" in one.roles]
    assert asked == ([{"resources": {"cpu": "9"}}] if grows else [])


def test_the_job_with_the_least_work_goes_first() -> None:
    life = Life(node("cpu", "1"), allocation="LeastWork")
    life.add("long", ideal=80.0, roles={"dataWorker": _role("1")})
    life.add("short", ideal=80.0, roles={"dataWorker": _role("1")})
    life.now += INTERVAL
    reports = {
        "uid-long": QueueSignals(life.now, 10_000, 10.0, 10.0, 80.0),
        "uid-short": QueueSignals(life.now, 10, 10.0, 10.0, 80.0),
    }
    plan, _ = life.planner.allocate(life.now, reports)
    assert [one.job for one in plan.actions if isinstance(one, WriteScale)] == ["short"]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"enqueued": 5.0, "dequeued": 5.0, "ideal": 20.0, "wait_share": None}, 20.0),
        ({"enqueued": 5.0, "dequeued": 5.0, "ideal": None, "wait_share": 0.75}, 20.0),
        ({"enqueued": 5.0, "dequeued": 5.0, "ideal": None, "wait_share": None}, 5.0),
    ],
)
def test_what_the_training_could_take(fields: dict[str, float | None], wanted: float) -> None:
    found = signals(time_seconds=1.0, step=1, steps_per_second=1.0, **fields)
    assert found is not None
    assert found.dequeue == pytest.approx(wanted)


def test_who_makes_all_batches_itself_waits_as_much_as_it_says_and_no_more() -> None:
    busy = signals(
        time_seconds=1.0,
        step=0,
        steps_per_second=0.0,
        enqueued=0.0,
        dequeued=5.0,
        ideal=5.1,
        wait_share=None,
    )
    assert busy is not None
    assert (busy.enqueue, busy.dequeue) == (5.0, 5.1)
    assert busy.throughput == 5.0, "a program that reports no steps takes one batch in each"


@pytest.mark.parametrize("rate", [None, 0.0])
def test_a_sample_without_a_queue_or_without_any_batch_says_nothing(rate: float | None) -> None:
    empty = signals(
        time_seconds=1.0,
        step=1,
        steps_per_second=1.0,
        enqueued=rate,
        dequeued=rate,
        ideal=None,
        wait_share=0.9,
    )
    assert empty is None


@pytest.mark.parametrize(("sent", "where"), [(1e9, "gpu"), (1e6, "cpu")])
def test_a_job_that_moves_many_bytes_gets_its_data_workers_beside_it(
    sent: float, where: str
) -> None:
    life = Life(node("cpu", "8"), node("gpu", "16", 1))
    life.add("a", ideal=80.0, per_core=10.0, roles={"dataWorker": _role("1")})
    life.planner.state.put_pod(pod("w", "8", 1, job="a", role="worker", on="gpu"), life.now)
    life.interval()
    report = life.report("a")
    life.interval(a=replace(report, time_seconds=life.now + INTERVAL, bytes_per_second=sent))
    assert life.data["a"] == (2, 1)
    assert life.planner.state.pods["uid-a-1"].pod.node == where


def test_a_model_of_the_job_gets_all_of_its_data_workers_in_one_interval(life: Life) -> None:
    life.add("a", ideal=60.0, per_core=10.0)
    model = Predicted(data_workers=6, cores=1, throughput=6.0, why="cores bind")

    def predicted() -> QueueSignals:
        return replace(life.report("a"), time_seconds=life.now + INTERVAL, predicted=model)

    [scale] = life.interval(a=predicted())
    assert scale.roles["dataWorker"]["replicas"] == 6
    assert scale.reason is Reason.DATA_STALL
    life.interval(a=predicted())
    assert life.tuning("a").stage is Stage.TUNED
    assert life.data["a"] == (6, 1)


def test_with_room_for_fewer_they_are_fewer_and_less_is_promised() -> None:
    life = Life(node("cpu", "3"))
    life.add("a", ideal=60.0, per_core=10.0)
    model = Predicted(data_workers=6, cores=1, throughput=6.0, why="cores bind")
    life.interval(a=replace(life.report("a"), time_seconds=START + INTERVAL, predicted=model))
    workers, _ = life.data["a"]
    assert 1 <= workers <= 3
    assert life.tuning("a").promised == pytest.approx(10 + 50 * workers / 6)


def test_a_job_that_waits_for_storage_is_told_so_once_and_gets_none(life: Life) -> None:
    life.add("a", ideal=60.0, per_core=10.0)
    model = Predicted(6, 1, 6.0, waits_for_storage=True, why="it waits for storage, not for CPU")
    told = []
    for _ in range(4):
        life.now += INTERVAL
        report = replace(life.report("a"), predicted=model)
        plan, _ = life.planner.allocate(life.now, {"uid-a": report})
        assert not [one for one in plan.actions if isinstance(one, WriteScale)]
        told += [one for one in plan.records if one.reason is Reason.FETCH_STALL]
    [record] = told
    assert (record.job, record.view) == ("a", None)
    assert "storage" in record.message
