"""What the planner reads from the Brain, and the read models that it hands over."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from penstock.base.enums import Role
from penstock.client import AsyncBrainClient, RetryPolicy
from penstock.scheduler.capacity.workload import workload_of
from penstock.scheduler.model.decisions import Reason, Record
from penstock.scheduler.planner.planner import Planner
from penstock.scheduler.service.connections.brain_connection import (
    DESCRIPTION_SECONDS,
    BrainConnection,
    read_sample,
    snapshot_of,
)
from penstock.scheduler.service.metrics import Metrics
from penstock.scheduler.stage_tuning import MeasuredStage
from penstock.wire import QueueSample, RoleUse, SampleView
from penstock.wire.cluster import MAX_NODES
from penstock.wire.samples import StageSample
from tests.scheduler.planner.documents import node, pod

NOW = 1_800_000_000.0


def sample(**fields: Any) -> dict[str, Any]:
    about = {"time": NOW, "received_seconds": NOW, "step": 7, "steps_per_second": 2.0}
    return {**about, **fields}


QUEUE = {
    "enqueued_per_second": 2.0,
    "dequeued_per_second": 2.0,
    "ideal_per_second": 8.0,
    "received_bytes_per_second": 3e8,
}


def test_the_ideal_rate_is_what_the_training_could_take() -> None:
    found = read_sample(SampleView(**sample(queue=QueueSample(**QUEUE))))
    assert found is not None
    assert (found.enqueue, found.dequeue, found.step) == (2.0, 8.0, 7)
    assert found.bytes_per_second == 3e8


def test_without_it_the_waiting_of_the_workers_says_so() -> None:
    queue = QueueSample(enqueued_per_second=2.0, dequeued_per_second=2.0)
    use = RoleUse(
        replicas=1, cpu_cores=1.0, hottest_cpu_cores=1.0, peak_memory_bytes=1, wait_share=0.5
    )
    found = read_sample(SampleView(**sample(queue=queue, roles={Role.WORKER: use})))
    assert found is not None
    assert found.dequeue == pytest.approx(4.0)


def test_stages_are_told_where_there_are_several() -> None:
    stages = [
        StageSample(made_per_second=2.0, busy_share=1.0),
        StageSample(made_per_second=2.0, busy_share=0.5),
    ]
    found = read_sample(SampleView(**sample(queue=QueueSample(**QUEUE, stages=stages))))
    assert found is not None
    assert found.stages == (MeasuredStage(2.0, 1.0), MeasuredStage(2.0, 0.5))
    one = read_sample(SampleView(**sample(queue=QueueSample(**QUEUE))))
    assert one is not None
    assert one.stages == ()


def test_a_job_without_a_queue_has_no_signals() -> None:
    assert read_sample(SampleView(**sample())) is None


def link(answer: Any, metrics: Metrics) -> BrainConnection:
    client = AsyncBrainClient(
        "http://brain",
        transport=httpx.MockTransport(answer),
        retry=RetryPolicy(total_seconds=0.3, attempt_seconds=0.1, first_seconds=0.01),
    )
    return BrainConnection(client, metrics)


def test_a_job_that_is_not_known_and_one_that_fails_do_not_stop_the_others() -> None:
    metrics = Metrics()

    async def answer(request: httpx.Request) -> httpx.Response:
        if "/strange/" in request.url.path:
            return httpx.Response(404, json={"type": "about:blank", "title": "x", "status": 404})
        if "/broken/" in request.url.path:
            return httpx.Response(503)
        if not request.url.path.endswith("/samples"):
            return httpx.Response(404, json={"type": "about:blank", "title": "x", "status": 404})
        return httpx.Response(200, json={"items": [sample(queue=QUEUE)]})

    found = asyncio.run(link(answer, metrics).read(["strange", "broken", "good"], NOW, 5.0))
    assert set(found) == {"good"}
    [counted] = [
        one for one in metrics.call_errors.collect()[0].samples if one.name.endswith("_total")
    ]
    assert counted.labels == {"what": "Signals", "reason": "BrainUnavailableError"}


def test_a_brain_that_hangs_delays_an_interval_by_no_more_than_its_length() -> None:
    metrics = Metrics()

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    async def timed() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await link(answer, metrics).read([f"j{i}" for i in range(100)], NOW, 0.5)
        return loop.time() - begun

    assert asyncio.run(timed()) < 10


def test_the_read_models_are_bounded_and_say_what_strands() -> None:
    planner = Planner()
    for index in range(MAX_NODES + 10):
        planner.state.put_node(node(f"cpu-{index}"))
    planner.state.put_node(node("gpu", "8", 2))
    planner.state.put_pod(pod("busy", "8", 0, on="gpu"), NOW)
    record = Record("k" * 300, NOW, "u", "default", "j", "p", Reason.PLACED, "m" * 2000)
    snapshot = snapshot_of(planner.state, NOW, [record] * 600)
    assert len(snapshot.nodes) == MAX_NODES
    assert snapshot.nodes[0].name == "gpu"
    assert snapshot.nodes[0].fragmentation == -1.0
    assert snapshot.stranded_gpus == 2.0
    assert {one.fragmentation for one in snapshot.nodes[1:]} == {0.0}, "they strand nothing"
    assert len(snapshot.allocations) == 500


def test_what_a_model_says_of_a_job_comes_with_its_signals() -> None:
    decision = {
        "data_workers": 3,
        "cores": 1,
        "promised": 45.0,
        "promised_low": 43.0,
        "promised_high": 47.0,
        "without": 18.0,
        "share": 0.6,
        "cut": "whole batch",
        "binding": "accelerator",
        "waits_for_storage": False,
        "why": "bound by workers",
    }
    known = {
        "time": NOW - 5,
        "source": "job",
        "unit": "batches/s",
        "processes": 1,
        "rate": 18.0,
        "stalled": 0.6,
        "causes": {"preparation": 0.6},
        "limits": {"workers": 18.0},
        "cores": 4.0,
        "workers": 2,
        "data_workers": 0,
        "model_error": 0.0,
        "decision": decision,
    }

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/input"):
            if "/unknown/" in request.url.path:
                problem = {"type": "about:blank", "title": "x", "status": 404}
                return httpx.Response(404, json=problem)
            when = NOW - 500 if "/stale/" in request.url.path else NOW - 5
            return httpx.Response(200, json={**known, "time": when})
        return httpx.Response(200, json={"items": [sample(queue=QUEUE)]})

    uids = ["good", "unknown", "stale"]
    found = asyncio.run(link(answer, Metrics()).read(uids, NOW, 5.0))
    assert set(found) == set(uids)
    assert found["unknown"].predicted is None
    assert found["stale"].predicted is None
    model = found["good"].predicted
    assert model is not None
    assert (model.data_workers, model.cores, model.throughput) == (3, 1, 2.5)


def test_how_long_a_job_is_comes_with_its_signals_and_is_asked_for_now_and_then() -> None:
    asked: list[str] = []
    steps: dict[str, int | None] = {"known": 1000, "endless": None}

    def described(uid: str) -> dict[str, Any]:
        about = {"name": uid, "namespace": "ns", "strategy": "AllReduce", "roles": {"worker": {}}}
        seen = {"registered_seconds": NOW, "last_seen_seconds": NOW}
        length = {} if steps[uid] is None else {"total_steps": steps[uid]}
        return {**about, **seen, **length, "uid": uid, "phase": "Active"}

    async def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/samples"):
            return httpx.Response(200, json={"items": [sample(queue=QUEUE)]})
        uid = path.rpartition("/")[2]
        if uid in steps:
            asked.append(uid)
            return httpx.Response(200, json=described(uid))
        if uid == "broken":
            asked.append(uid)
            return httpx.Response(503)
        return httpx.Response(404, json={"type": "about:blank", "title": "x", "status": 404})

    async def scenario() -> None:
        brain = link(answer, Metrics())
        uids = ["known", "endless", "broken"]
        for later in (0.0, 30.0, 60.0):
            found = await brain.read(uids, NOW + later, 30.0)
            left = {uid: one.remaining_steps for uid, one in found.items()}
            assert left == {"known": 993.0, "endless": 7.0, "broken": 7.0}
        assert (asked.count("known"), asked.count("endless")) == (1, 1)
        steps["known"] = 2000
        found = await brain.read(["known"], NOW + DESCRIPTION_SECONDS, 30.0)
        assert found["known"].remaining_steps == 1993.0
        assert set(brain._lengths) == {"known"}, "of jobs that are no more nothing is kept"

    asyncio.run(scenario())


def test_which_pods_there_are_is_pushed_and_a_brain_without_the_path_is_no_fault() -> None:
    metrics, seen = Metrics(), []
    status = 204

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status)

    planner = Planner()
    planner.state.put_node(node("a", "8", 2))
    known = workload_of(planner.state)
    assert asyncio.run(link(answer, metrics).push_workload(known, NOW, "stranding"))
    assert (seen[0].method, seen[0].url.path) == ("PUT", "/v1/cluster/workload")
    status = 404
    assert not asyncio.run(link(answer, metrics).push_workload(known, NOW, "stranding"))
    assert not metrics.call_errors.collect()[0].samples


def test_pods_that_the_wire_cannot_carry_end_nothing() -> None:
    metrics = Metrics()

    async def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError

    planner = Planner()
    planner.state.put_node(node("a", taints=[{"key": "k" * 500, "effect": "NoSchedule"}]))
    known = workload_of(planner.state)
    assert not asyncio.run(link(answer, metrics).push_workload(known, NOW, "stranding"))
    [counted] = [
        one for one in metrics.call_errors.collect()[0].samples if one.name.endswith("_total")
    ]
    assert counted.labels == {"what": "Workload", "reason": "ValidationError"}
