"""The store: of two states the newer counts, however late and in whatever order they come."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from penstock.controller.store import Store
from tests.controller.life import job as make_job
from tests.controller.life import scale as make_scale

Json = dict[str, Any]
KEY = ("ns", "job")


@pytest.fixture
def changed() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def store(changed: list[tuple[str, str]]) -> Store:
    return Store(changed.append)


def job(version: int, uid: str = "job-uid", **status: Any) -> Json:
    raw = make_job()
    raw["metadata"].update(uid=uid, resourceVersion=str(version), generation=1)
    raw["status"] = status
    return raw


def scale(version: int, name: str = "s", uid: str = "scale-uid") -> Json:
    raw = make_scale(name, "job-uid", {"worker": {"replicas": 2}})
    raw["metadata"].update(uid=uid, resourceVersion=str(version))
    return raw


def pod(version: int, name: str = "p", uid: str = "pod-uid", phase: str = "Pending") -> Json:
    tags = {
        "penstock.dev/job": "job",
        "penstock.dev/job-uid": "job-uid",
        "penstock.dev/role": "worker",
        "penstock.dev/rank": "0",
        "penstock.dev/incarnation": "0",
    }
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": tags,
    }
    return {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}


def phases(store: Store) -> dict[str, str]:
    return {one.name: one.phase for one in store.pods(KEY, "job-uid")}


def test_a_late_event_does_not_undo_an_own_write(store: Store) -> None:
    store.put_job(job(10))
    store.put_job(job(12, suspendedSeconds=5), own=True)
    store.put_job(job(11))
    found = store.job(KEY)
    assert found is not None
    assert found.resource_version == "12"
    assert found.status.suspended_seconds == 5


def test_own_writes_need_no_second_look(store: Store, changed: list[tuple[str, str]]) -> None:
    store.put_pod(pod(10), own=True)
    assert changed == []
    store.watched_pod("ADDED", pod(10))
    assert changed == [], "it brings nothing new"
    store.watched_pod("MODIFIED", pod(11, phase="Running"))
    assert changed == [KEY]


def test_the_answer_to_a_creation_does_not_revive_what_the_watch_saw_go(store: Store) -> None:
    store.watched_pod("ADDED", pod(10))
    store.watched_pod("DELETED", pod(12))
    store.put_pod(pod(10), own=True)
    assert phases(store) == {}


def test_the_answer_to_a_creation_that_the_watch_never_showed_is_dropped_when_past(
    store: Store,
) -> None:
    store.watched_pod("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
    store.put_pod(pod(15), own=True)
    assert phases(store) == {}, "the watch is past 15 and has not shown it: it has gone"


def test_a_list_keeps_what_is_newer_than_itself(store: Store) -> None:
    store.put_pod(pod(30, "new", "uid-new"), own=True)
    store.watched_pod("ADDED", pod(10, "old", "uid-old"))
    store.replace_pods([], 20)
    assert phases(store) == {"new": "Pending"}


def test_a_list_drops_what_went_unseen(store: Store, changed: list[tuple[str, str]]) -> None:
    store.watched_pod("ADDED", pod(10))
    changed.clear()
    store.replace_pods([], 20)
    assert phases(store) == {}
    assert changed == [KEY]


def test_a_deletion_of_an_earlier_pod_of_the_name(store: Store) -> None:
    store.watched_pod("ADDED", pod(10, uid="second"))
    store.watched_pod("DELETED", pod(11, uid="first"))
    assert phases(store) == {"p": "Pending"}


def test_a_job_of_the_same_name_takes_the_place_of_the_old(store: Store) -> None:
    store.put_job(job(10, uid="first"))
    store.put_job(job(20, uid="second"))
    store.put_job(job(15, uid="first"))
    found = store.job(KEY)
    assert found is not None
    assert found.uid == "second"
    store.drop_job(KEY, "first")
    assert store.job(KEY) is not None


def test_jobs_and_scales_that_went_while_the_watch_was_broken(store: Store) -> None:
    store.put_job(job(10))
    store.put_scale(scale(11))
    store.put_scale(scale(31, "later", "later-uid"))
    store.replace([], 20, [], 20)
    assert store.job(KEY) is None
    assert [one.name for one in store.scales(KEY)] == ["later"]


def test_the_spec_is_read_once_for_each_generation(store: Store) -> None:
    store.put_job(job(10))
    first = store.job(KEY)
    store.put_job(job(11, state="Running"))
    second = store.job(KEY)
    raw = job(12)
    raw["metadata"]["generation"] = 2
    store.put_job(raw)
    third = store.job(KEY)
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.spec is second.spec
    assert third.spec is not second.spec


@pytest.mark.parametrize(
    "missing", ["penstock.dev/rank", "penstock.dev/role", "penstock.dev/job-uid"]
)
def test_pods_that_are_not_ours_are_passed_over(store: Store, missing: str) -> None:
    raw = copy.deepcopy(pod(10))
    del raw["metadata"]["labels"][missing]
    store.watched_pod("ADDED", raw)
    assert store.counts()["pods"] == 0


def test_counts(store: Store) -> None:
    store.put_job(job(1))
    store.put_scale(scale(2))
    store.put_pod(pod(3))
    assert store.counts() == {"jobs": 1, "scales": 1, "pods": 1}
