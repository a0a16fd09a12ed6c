"""How often the controller writes: each call that tells nobody anything new is one too many."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import kopf
import pytest

from penstock.controller.execution.event_recorder import BURST, PER_SECOND, EventRecorder
from penstock.controller.framework import make_settings
from penstock.controller.metrics import Metrics
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.actions import RecordEvent
from penstock.controller.reconcile.model.observed import Job
from penstock.crds.events import EventReason
from penstock.kube.api import Api
from tests.controller.life import Life

WORKERS = 10


def status_writes(life: Life) -> int:
    return life.server.calls.count(("patch", "elasticjobs/status", "job"))


def created(life: Life) -> int:
    found: int = life.status["replicas"]["worker"]["created"]
    return found


def look(life: Life) -> None:
    """The controller sees what is new, and looks at the job once more."""
    life.deliver()
    assert life.one_pass()
    life.deliver()
    assert life.one_pass()


@pytest.fixture
def growing(life: Life) -> Life:
    """A job whose pods have been made, and of which none runs."""
    life.create_job(workers={"replicas": WORKERS})
    look(life)
    assert len(life.names("worker")) == WORKERS
    return life


def test_a_job_costs_its_pods_its_objects_one_status_and_one_event(growing: Life) -> None:
    verbs = [(verb, resource) for verb, resource, _ in growing.server.calls]
    of_the_key = {("get", "secrets", "penstock-job-key"), ("create", "secrets", "penstock-job-key")}
    once_for_all_jobs = [call for call in growing.server.calls if call in of_the_key]
    assert len(verbs) - len(once_for_all_jobs) == (WORKERS + 1) + 5 + 1 + 1


def test_that_pods_exist_is_written_with_what_comes_of_them(growing: Life) -> None:
    assert (status_writes(growing), created(growing)) == (1, 0)
    growing.run_pods()
    look(growing)
    assert (status_writes(growing), created(growing)) == (2, WORKERS)


def test_that_pods_exist_is_written_after_a_while_though_nothing_comes_of_them(
    growing: Life,
) -> None:
    interval = timing.CREATED_STATUS_INTERVAL
    growing.server.advance(interval.total_seconds() - 1)
    look(growing)
    assert (status_writes(growing), created(growing)) == (1, 0)
    growing.server.advance(1)
    look(growing)
    assert (status_writes(growing), created(growing)) == (2, WORKERS)


def test_pods_that_become_ready_one_by_one_are_written_together(growing: Life) -> None:
    """But the job's conditions at once: that it runs, and that all are there."""
    names = growing.names("trainer") + growing.names("worker")
    for name in names[:2]:
        growing.run_pod(name)
    look(growing)
    assert growing.condition("Running")[0] == "True"
    before = status_writes(growing)
    for name in names[2:-1]:
        growing.run_pod(name)
        growing.server.advance(0.5)
        look(growing)
    assert status_writes(growing) == before
    growing.server.advance(timing.SCALING_STATUS_INTERVAL.total_seconds())
    look(growing)
    assert status_writes(growing) == before + 1
    assert growing.status["workers"] == f"{WORKERS - 1}/{WORKERS}"
    growing.run_pod(names[-1])
    look(growing)
    assert growing.condition("Scaling")[0] == "False"
    assert growing.status["workers"] == f"{WORKERS}/{WORKERS}"


class Submitted:
    """An API server that takes Events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def submit(self, resource: str, namespace: str, body: Any) -> None:
        self.reasons.append(body["reason"])


class TestEventsAreBounded:
    @pytest.fixture(autouse=True)
    def recording(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.api, self.metrics = Submitted(), Metrics()
        self.recorder = EventRecorder(cast("Api", self.api), self.metrics, lambda: self.now, "test")
        self.job = Job("ns", "job", "uid", "1", 1, self.now, None)

    def record(self, reason: EventReason, times: int = 1) -> None:
        async def all_of_them() -> None:
            for _ in range(times):
                await self.recorder.record(self.job, RecordEvent(reason, "text"))

        asyncio.run(all_of_them())

    def dropped(self) -> float | None:
        return self.metrics.registry.get_sample_value("penstock_controller_events_dropped_total")

    def test_news_beyond_the_bound_is_dropped_and_counted(self) -> None:
        self.record(EventReason.ACCEPTED, BURST + 7)
        assert len(self.api.reasons) == BURST
        assert self.dropped() == 7
        self.now += timedelta(seconds=1)
        self.record(EventReason.ACCEPTED, BURST)
        assert len(self.api.reasons) == BURST + PER_SECOND

    def test_warnings_are_always_recorded(self) -> None:
        self.record(EventReason.ACCEPTED, BURST + 1)
        self.record(EventReason.PODS_REPLACED, 20)
        assert self.api.reasons[BURST:] == [EventReason.PODS_REPLACED] * 20

    def test_a_clock_that_goes_back_gives_nothing_away(self) -> None:
        self.record(EventReason.ACCEPTED, BURST)
        self.now -= timedelta(hours=1)
        self.record(EventReason.ACCEPTED)
        assert len(self.api.reasons) == BURST


def test_the_framework_copies_no_object_to_compare_it() -> None:
    storage = make_settings().persistence.diffbase_storage
    body = kopf.Body({"metadata": {"name": "job"}, "spec": {"replicas": 1}})
    patch = kopf.Patch()
    storage.store(body=body, patch=patch, essence=storage.build(body=body))
    assert (storage.build(body=body), storage.fetch(body=body), dict(patch)) == ({}, None, {})
