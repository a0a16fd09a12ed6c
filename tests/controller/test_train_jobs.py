"""TrainJobs run in place: what becomes of each, and how the shell goes about it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.metrics import Metrics
from penstock.controller.reconcile.model.observed import Job
from penstock.controller.reconcile.model.parsing import read_job, read_spec
from penstock.controller.reconcile.status import merge_patch
from penstock.controller.reconcile.train_job import (
    CREATED,
    RUNTIME_GRACE_SECONDS,
    Obstacle,
    ObstacleReason,
    Step,
    TrainJob,
    account,
    converted,
    next_step,
    read_train_job,
    status_of,
)
from penstock.controller.store import Store
from penstock.controller.train_jobs import PLURAL, TrainJobs
from penstock.convert.source import RefusedError
from penstock.kube.api import Page
from penstock.kube.errors import ApiRefusedError
from tests.controller.fake_server import START

Json = dict[str, Any]

MANAGER = "penstock.dev/controller"
QUEUE = "kueue.x-k8s.io/queue-name"


def raw_train_job(name: str = "tunes", uid: str = "train-uid", **spec: Any) -> Json:
    trainer = {"numNodes": 2, "image": "ours:1", "command": ["torchrun", "train.py"]}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "generateName": "tu",
            "labels": {QUEUE: "research", "team": "a"},
        },
        "spec": {
            "managedBy": MANAGER,
            "runtimeRef": {"name": "torch-distributed", "apiGroup": "trainer.kubeflow.org"},
            "trainer": trainer,
            **spec,
        },
    }


def raw_job(
    owner: Mapping[str, Any] | None = None, status: Json | None = None, *, suspend: bool = False
) -> Json:
    made = converted(read_train_job(raw_train_job()), None).result
    made["metadata"] |= {"uid": "job-uid", "resourceVersion": "9"}
    if owner is not None:
        made["metadata"]["ownerReferences"] = [dict(owner)] if owner else []
    made["spec"]["suspend"] = suspend
    return {**made, "status": status or {}}


def job_of(raw: Json) -> Job:
    return read_job(raw, *read_spec(raw["spec"]))


def conditions(**by_type: bool) -> Json:
    return {
        "conditions": [
            {"type": kind, "status": str(value), "reason": f"{kind}Because", "message": "so"}
            for kind, value in by_type.items()
        ]
    }


def over(kind: str) -> Json:
    return conditions(**{kind: True})


@pytest.mark.parametrize(
    ("train", "job", "step"),
    [
        ({}, None, Step.MAKE),
        ({"suspend": True}, None, Step.NOTHING),
        ({}, {}, Step.NOTHING),
        ({"suspend": True}, {}, Step.SUSPEND),
        ({"suspend": True}, {"suspend": True}, Step.NOTHING),
        ({}, {"suspend": True}, Step.RESUME),
        ({"suspend": True}, {"status": over("Succeeded")}, Step.NOTHING),
        ({}, {"owner": {}}, Step.NAME_TAKEN),
        ({}, {"owner": {"kind": "Other", "uid": "x", "controller": True}}, Step.NAME_TAKEN),
        ({}, {"owner": {"kind": "TrainJob", "uid": "x", "controller": True}}, Step.AWAIT_OLD_JOB),
    ],
)
def test_the_next_step(train: Json, job: Json | None, step: Step) -> None:
    found = None if job is None else job_of(raw_job(**job))
    assert next_step(read_train_job(raw_train_job(**train)), found) is step


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_an_ended_train_job_is_left_alone(kind: str) -> None:
    raw = {**raw_train_job(), "status": over(kind)}
    train_job = read_train_job(raw)
    assert next_step(train_job, None) is Step.NOTHING
    assert (
        status_of(train_job, job_of(raw_job(status=over("Failed"))), None, START) == raw["status"]
    )


def test_the_job_is_owned_and_whoever_queues_the_train_job_holds_back_the_whole_of_it() -> None:
    found = converted(read_train_job(raw_train_job(suspend=True, activeDeadlineSeconds=60)), None)
    [owner] = found.result["metadata"].pop("ownerReferences")
    assert (owner["uid"], owner["controller"]) == ("train-uid", True)
    assert "blockOwnerDeletion" not in owner  # which would need a right to finalizers
    assert found.result["metadata"] == {"name": "tunes", "namespace": "ns", "labels": {"team": "a"}}
    assert "suspend" not in found.result["spec"]
    assert found.result["spec"]["activeDeadlineSeconds"] == 60
    assert QUEUE not in str(found.result)


def test_what_is_dropped_is_named_in_the_event() -> None:
    raw = raw_train_job(initializer={"dataset": {"storageUri": "hf://x"}})
    text = account(converted(read_train_job(raw), None))
    assert "spec.initializer" in text
    assert "penstock[runtime]" in text
    assert len(text) <= 1100


def test_one_that_cannot_be_converted_is_refused() -> None:
    with pytest.raises(RefusedError, match="MPI starts its programs"):
        converted(read_train_job(raw_train_job(runtimeRef={"name": "mpi-distributed"})), None)


FLAGS = st.fixed_dictionaries(
    {kind: st.booleans() for kind in ("Running", "Suspended", "Succeeded", "Failed")}
)


OBSTACLES = st.builds(
    Obstacle, st.sampled_from(list(ObstacleReason)), st.just("why"), final=st.booleans()
)


@given(
    suspended=st.booleans(),
    flags=st.none() | FLAGS,
    before=st.none() | OBSTACLES,
    obstacle=st.none() | OBSTACLES,
)
def test_a_status_once_written_is_written_no_more(
    suspended: bool,
    flags: dict[str, bool] | None,
    before: Obstacle | None,
    obstacle: Obstacle | None,
) -> None:
    job = None if flags is None else job_of(raw_job(status=conditions(**flags)))
    raw = raw_train_job(suspend=suspended)
    raw = {**raw, "status": status_of(read_train_job(raw), None, before, START)}
    first = status_of(read_train_job(raw), job, obstacle, START)
    again = {**raw, "status": first}
    later = START + timedelta(hours=1)
    assert not merge_patch(first, status_of(read_train_job(again), job, obstacle, later))
    if before is not None and before.final:
        return
    if flags is not None:
        [counts] = first["jobsStatus"]
        assert counts["active"] + counts["suspended"] + max(
            counts["succeeded"], counts["failed"]
        ) in {1, 0} | ({1} if flags["Succeeded"] or flags["Failed"] else set())


def test_what_others_have_written_stays() -> None:
    status = {"trainerStatus": {"progressPercentage": 4}, **conditions(Audited=True)}
    raw = {**raw_train_job(), "status": status}
    wanted = status_of(read_train_job(raw), job_of(raw_job(status=over("Succeeded"))), None, START)
    assert wanted["trainerStatus"] == {"progressPercentage": 4}
    assert [one["type"] for one in wanted["conditions"]] == ["Audited", "Complete"]


# ---------------------------------------------------------------------- the shell


class Server:
    """As much of an API server as TrainJobs are told from."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.events: list[Json] = []
        self.version = 100
        self.refusal = ""
        self.tries = 0

    def _seen(self, found: Json) -> Json:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        return found

    async def get(self, resource: str, namespace: str | None, name: str) -> Json:
        if (resource, name) not in self.objects:
            raise ApiRefusedError("not found", code=404, reason="NotFound")
        return self.objects[resource, name]

    async def create(self, resource: str, namespace: str, body: Json) -> Json:
        key = (resource, body["metadata"]["name"])
        self.tries += 1
        if self.refusal:
            text = f"elasticjobs is forbidden: {self.refusal}, try {self.tries}"
            raise ApiRefusedError(text, code=403, reason="Forbidden")
        if key in self.objects:
            raise ApiRefusedError("there", code=409, reason="AlreadyExists")
        body["metadata"]["uid"] = f"uid-{self.version}"
        self.objects[key] = self._seen(body)
        return body

    async def patch(
        self, resource: str, namespace: str, name: str, body: Json, *, subresource: str = ""
    ) -> Json:
        found = self.objects[resource, name]
        part = subresource or "spec"
        merged = _merged(found.get(part) or {}, body[part])
        if part == "spec":
            found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
        self.objects[resource, name] = self._seen({**found, part: merged})
        return self.objects[resource, name]

    async def submit(self, resource: str, namespace: str, body: Json) -> None:
        self.events.append(body)


def _merged(old: Json, patch: Json) -> Json:
    result = dict(old)
    for name, value in patch.items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = _merged(result[name], value)
        else:
            result[name] = value
    return result


class Shell:
    """TrainJobs whose passes a test makes one by one."""

    def __init__(self) -> None:
        self.server = Server()
        self.now = START
        self.store = Store(lambda _: None, self._written)
        self.shell = TrainJobs(
            self.server,  # type: ignore[arg-type]  # as much of it as is asked
            self.store,
            MANAGER,
            None,
            Metrics(),
            lambda: self.now,
            "test",
            random.Random(0),
        )

    def _written(self, key: tuple[str, str]) -> None:
        self.shell.changed(key)

    def put(self, raw: Json) -> None:
        self.server.objects[PLURAL, raw["metadata"]["name"]] = raw
        self.shell._take("ADDED", raw)

    async def go(self) -> None:
        for key in list(self.shell._jobs):
            await self.shell._try(key)

    def status(self) -> dict[str, tuple[str, str]]:
        status = self.server.objects[PLURAL, "tunes"].get("status") or {}
        return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions", ())}

    def has_job(self) -> bool:
        return ("elasticjobs", "tunes") in self.server.objects


def test_another_managers_train_job_is_not_touched() -> None:
    async def scenario() -> None:
        shell = Shell()
        for manager in (None, "", "trainer.kubeflow.org/trainjob-controller"):
            shell.put(raw_train_job(managedBy=manager))
            await shell.go()
        assert set(shell.server.objects) == {(PLURAL, "tunes")}
        assert shell.status() == {}

    asyncio.run(scenario())


def test_a_runtime_may_come_a_little_later_and_is_then_missed() -> None:
    async def scenario() -> None:
        shell = Shell()
        shell.put(raw_train_job(runtimeRef={"name": "ours"}))
        await shell.go()
        assert (shell.status(), shell.has_job()) == ({}, False)
        shell.now += timedelta(seconds=RUNTIME_GRACE_SECONDS)
        await shell.go()
        assert shell.status() == {"Failed": ("True", "RuntimeNotFound")}
        assert shell.server.events[-1]["reason"] == "NotConverted"
        told = len(shell.server.events)
        await shell.go()
        assert len(shell.server.events) == told

    asyncio.run(scenario())


def test_an_elastic_job_of_somebody_elses_is_kept() -> None:
    async def scenario() -> None:
        shell = Shell()
        theirs = raw_job(owner={})
        shell.server.objects["elasticjobs", "tunes"] = theirs
        shell.put(raw_train_job())
        await shell.go()  # is told by the server that the name is taken
        await shell.go()
        assert shell.status() == {"Failed": ("True", "NameTaken")}
        assert shell.server.objects["elasticjobs", "tunes"] is theirs

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("refusal", "reason", "advice"),
    [
        ("exceeded quota: few, used: 5, limited: 5", "QuotaExceeded", "raise that quota"),
        ("the account has no right to create them", "Forbidden", "service account that right"),
        (f"a webhook says no, {'at length ' * 200}", "Forbidden", "every minute in the end"),
    ],
)
def test_who_may_not_make_the_job_says_so_once_and_goes_on_trying(
    refusal: str, reason: str, advice: str
) -> None:
    async def scenario() -> None:
        shell = Shell()
        shell.server.refusal = refusal
        shell.put(raw_train_job())
        for _ in range(4):
            await shell.go()
        assert shell.server.tries == 4
        assert shell.status() == {CREATED: ("False", reason)}
        [event] = shell.server.events
        assert event["reason"] == "NotConverted"
        assert refusal[:500] in event["message"]
        assert advice in event["message"]
        before = shell.server.objects[PLURAL, "tunes"]
        await shell.go()
        assert shell.server.objects[PLURAL, "tunes"] is before, "or each try would make another"
        shell.server.refusal = ""
        await shell.go()
        assert shell.has_job()
        assert shell.status() == {CREATED: ("True", "Created")}

    asyncio.run(scenario())


def test_one_that_is_suspended_while_it_is_held_up_is_tried_no_more() -> None:
    async def scenario() -> None:
        shell = Shell()
        shell.server.refusal = "exceeded quota"
        shell.put(raw_train_job())
        await shell.go()
        tries = shell.server.tries
        shell.put(shell.server._seen({**shell.server.objects[PLURAL, "tunes"], **suspended()}))
        await shell.go()
        assert shell.server.tries == tries
        assert shell.status()[CREATED] == ("False", "Suspended")

    asyncio.run(scenario())


def suspended() -> Json:
    return {"spec": raw_train_job(suspend=True)["spec"]}


def owned_by(name: str, uid: str) -> Json:
    return raw_job(owner={"kind": "TrainJob", "name": name, "uid": uid, "controller": True})


def test_the_job_of_another_train_job_that_runs_is_said_and_waited_for() -> None:
    async def scenario() -> None:
        shell = Shell()
        theirs = owned_by("other", "other-uid")
        shell.server.objects["elasticjobs", "tunes"] = theirs
        shell.store.put_job(theirs)
        shell.put({**raw_train_job(name="other", uid="other-uid", suspend=True)})
        shell.put(raw_train_job())
        for _ in range(3):
            await shell.go()
        assert shell.status() == {CREATED: ("False", "NameTaken")}
        [event] = shell.server.events
        assert "belongs to TrainJob other" in event["message"]
        assert "give this TrainJob another name" in event["message"]
        del shell.server.objects["elasticjobs", "tunes"]
        shell.store.drop_job(("ns", "tunes"), theirs["metadata"]["uid"])
        await shell.go()
        assert shell.has_job()
        assert shell.status() == {CREATED: ("True", "Created")}

    asyncio.run(scenario())


@pytest.mark.parametrize("deleting", [False, True])
def test_the_job_of_one_that_is_gone_is_said_to_be_waited_for(deleting: bool) -> None:
    async def scenario() -> None:
        shell = Shell()
        theirs = owned_by("tunes", "uid-before")
        if deleting:
            theirs["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
        shell.store.put_job(theirs)
        shell.put(raw_train_job())
        for _ in range(2):
            await shell.go()
        assert shell.status() == {CREATED: ("False", "AwaitsDeletion")}
        assert shell.server.events == [], "nobody has to do anything"
        message = shell.server.objects[PLURAL, "tunes"]["status"]["conditions"][0]["message"]
        assert ("metadata.finalizers" if deleting else "uid-before") in message

    asyncio.run(scenario())


def test_one_that_is_gone_by_now_does_not_take_the_name() -> None:
    async def scenario() -> None:
        shell = Shell()
        shell.store.put_job(raw_job(owner={}))  # as a watch that is late has it
        shell.put(raw_train_job())
        await shell.go()
        assert shell.status() == {}
        await shell.go()
        assert shell.has_job()

    asyncio.run(scenario())


def test_what_changed_while_it_was_suspended_counts_when_it_goes_on() -> None:
    async def scenario() -> None:
        shell = Shell()
        shell.put(raw_train_job())
        await shell.go()
        job = ("elasticjobs", "tunes")
        for suspend in (True, False):
            patch = {"metadata": {"labels": {"rack": "4"}}, "spec": {"nodeSelector": {"pool": "b"}}}
            template = {"spec": {"template": patch}}
            patches = [
                {
                    "manager": "kueue.x-k8s.io/manager",
                    "trainingRuntimeSpec": {
                        "template": {
                            "spec": {"replicatedJobs": [{"name": "node", "template": template}]}
                        }
                    },
                }
            ]
            raw = raw_train_job(suspend=suspend, runtimePatches=patches)
            shell.put(shell.server._seen(raw))
            await shell.go()
            assert shell.server.objects[job]["spec"]["suspend"] is suspend
            worker = shell.server.objects[job]["spec"]["replicaSpecs"]["worker"]
            found = worker["template"]["spec"].get("nodeSelector")
            assert found == (None if suspend else {"pool": "b"})

    asyncio.run(scenario())


def test_a_list_takes_the_place_of_what_was_known() -> None:
    async def scenario() -> None:
        shell = Shell()
        shell.put(raw_train_job())
        shell.shell._replace(Page([], "200"))
        await shell.go()
        assert not shell.has_job()

    asyncio.run(scenario())


def test_a_train_job_that_goes_is_forgotten() -> None:
    train_job: TrainJob = read_train_job(
        {**raw_train_job(), "metadata": {**raw_train_job()["metadata"], "deletionTimestamp": "x"}}
    )
    assert next_step(train_job, None) is Step.NOTHING
