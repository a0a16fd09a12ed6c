"""The objects that a job owns: made before its pods, made again when somebody deletes them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.controller.owned_objects import SECRETS_AT_A_TIME, OwnedObjects
from penstock.controller.reconcile.model import timing
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError
from tests.controller.fake_server import FakeApi
from tests.controller.life import Life, job

NAMES = {
    "secrets": "job-token",
    "services": "job",
    "serviceaccounts": "job-trainer",
    "roles": "job-trainer",
    "rolebindings": "job-trainer",
}


@pytest.fixture
def settled(life: Life) -> Life:
    life.create_job(workers={"replicas": 1})
    life.settle()
    return life


def there(life: Life) -> set[str]:
    return {kind for kind, name in NAMES.items() if name in life.server.objects[kind]}


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_deleted_object_of_a_settled_job_is_made_again(settled: Life, kind: str) -> None:
    settled.server.remove(kind, NAMES[kind])
    settled.server.advance(1)
    settled.find_missing_objects()
    settled.settle()
    assert there(settled) == NAMES.keys()
    assert settled.condition("Accepted")[0] == "True"


def test_a_secret_that_is_made_again_holds_the_same_token(settled: Life) -> None:
    before = settled.server.objects["secrets"]["job-token"]["stringData"]
    settled.server.remove("secrets", "job-token")
    settled.restart()  # the key is read from the cluster, not remembered
    settled.server.advance(1)
    settled.find_missing_objects()
    settled.settle()
    assert settled.server.objects["secrets"]["job-token"]["stringData"] == before


def test_looking_writes_nothing_while_all_is_there(settled: Life) -> None:
    settled.server.advance(1)
    before = settled.server.version
    settled.find_missing_objects()
    settled.settle()
    assert settled.server.version == before


def test_what_was_made_during_the_look_is_not_missing(settled: Life) -> None:
    [found] = settled.reconciler.jobs_with_objects().values()
    assert not settled.reconciler.objects_missing(found, settled.server.now.replace(year=2025))


@pytest.mark.parametrize("how", ["suspended", "finished"])
def test_a_job_without_pods_needs_none(settled: Life, how: str) -> None:
    if how == "suspended":
        settled.edit_spec(lambda spec: spec.update(suspend=True))
    else:
        settled.end_pod("job-worker-0-0", 0)
    settled.settle()
    assert settled.reconciler.jobs_with_objects() == {}


def test_a_container_that_misses_something_has_them_looked_at(settled: Life) -> None:
    """A new pod finds its Secret gone: it must not wait for the next look."""
    settled.server.remove("secrets", "job-token")
    settled.server.advance(timing.OBJECTS_DOUBT.total_seconds())
    settled.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=2))
    settled.settle(kubelet=False)
    settled.set_waiting("job-worker-1-0", "CreateContainerConfigError")
    settled.settle(kubelet=False)
    assert there(settled) == NAMES.keys()


def test_a_trainer_that_is_refused_has_them_looked_at(settled: Life) -> None:
    settled.server.remove("serviceaccounts", "job-trainer")

    def refuse(pod: Any) -> None:
        name = pod["spec"].get("serviceAccountName")
        if name and name not in settled.server.objects["serviceaccounts"]:
            text = f'serviceaccount "{name}" not found'
            raise ApiRefusedError(text, code=403, reason="Forbidden")

    settled.server.refuses_pod = refuse
    settled.end_pod("job-trainer-0-0", 1)
    settled.settle()
    assert there(settled) == NAMES.keys()
    assert settled.names("trainer") == ["job-trainer-0-1"]


@pytest.mark.parametrize("fault", ["crash-before", "crash-after", "blind", "lose", "refuse"])
@pytest.mark.parametrize("number", range(1, 11))
def test_they_go_out_together_and_any_of_them_may_fail(life: Life, fault: str, number: int) -> None:
    """Whatever becomes of one of the calls, pods come only once all its objects are there."""
    life.create_job(workers={"replicas": 1})
    seen: list[int] = []

    def first(_: int) -> str | None:
        verb, resource, _name = life.server.calls[-1]
        if verb == "create" and resource == "pods":
            assert there(life) == NAMES.keys()
        if resource in NAMES:
            seen.append(1)
            return fault if len(seen) == number else None
        return None

    life.fault = first
    life.settle()
    assert there(life) == NAMES.keys()
    assert life.names() == ["job-trainer-0-0", "job-worker-0-0"] or fault.startswith("crash")
    assert len(life.pods("trainer")) == len(life.pods("worker")) == 1


def test_secrets_are_read_a_few_at_a_time(life: Life) -> None:
    count = SECRETS_AT_A_TIME + 5
    for number in range(count):
        life.server.put("elasticjobs", job(f"job-{number:02}", workers={"replicas": 1}))
    life.deliver()
    for number in range(count):
        assert life.one_pass(("ns", f"job-{number:02}"))
    life.deliver()
    jobs = life.reconciler.jobs_with_objects()
    assert len(jobs) == count
    for number in (2, count - 1):
        life.server.remove("secrets", f"job-{number:02}-token")
    look = OwnedObjects(cast("Api", FakeApi(life.server, lambda _: None)), None)
    before = len(life.server.calls)
    first = life.loop.run_until_complete(look.find_missing(jobs))
    assert len(life.server.calls) - before == SECRETS_AT_A_TIME
    second = life.loop.run_until_complete(look.find_missing(jobs))
    assert first == {("ns", "job-02")}
    assert second == {("ns", "job-02"), ("ns", f"job-{count - 1}")}, "in turn"
