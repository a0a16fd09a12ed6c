"""Jobs that share batches: one Service, which no member founds and none can end, and one token."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.controller.execution.tokens import JobTokens
from penstock.crds import environment, labels
from penstock.kube.api import Api
from tests.controller.fake_server import FakeApi, FakeServer
from tests.controller.life import Life, template

NAME = "penstock-share-sweep"
SHARE = {"share": {"group": "sweep"}}
OURS = {environment.SHARE_ADDRESS, environment.SHARE_TOKEN}
KEYS = [("ns", "job"), ("ns", "other")]


def settle(life: Life) -> None:
    """Until neither of two jobs has anything left to do."""
    for _ in range(60):
        before = life.server.version
        for key in KEYS:
            life.deliver()
            life.one_pass(key)
            life.finish_deletions()
            life.run_pods()
        life.server.advance(0.5)
        if life.server.version == before and not life.server.pending:
            return
    raise AssertionError(f"still changing: {life.server.calls[-12:]}")


def create(life: Life, name: str = "job", **spec: Any) -> str:
    made = life.create_job(name=name, workers={"replicas": 1}, **{"input": SHARE, **spec})
    return str(made["metadata"]["uid"])


def owners(life: Life) -> list[str]:
    found = life.server.objects["services"][NAME]["metadata"]["ownerReferences"]
    assert not any({"controller", "blockOwnerDeletion"} & one.keys() for one in found)
    return [one["uid"] for one in found]


def told(life: Life, role: str) -> dict[str, Any]:
    """What the pods of a role are told of their group."""
    [pod] = life.pods(role)
    variables = pod["spec"]["containers"][0]["env"]
    return {one["name"]: one for one in variables if one["name"] in OURS}


def label(life: Life, role: str) -> list[str | None]:
    return [pod["metadata"]["labels"].get(labels.SHARE_GROUP) for pod in life.pods(role)]


def test_a_member_makes_what_its_group_has_and_its_pods_are_told(life: Life) -> None:
    roles = {
        "dataWorker": {"template": template(), "replicas": 1},
        "evaluator": {"template": template(), "replicas": 1},
    }
    uid = create(life, roles=roles)
    life.settle()
    assert owners(life) == [uid]
    service = life.server.objects["services"][NAME]
    assert service["spec"]["selector"] == {labels.SHARE_GROUP: "sweep"}
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["clusterIP"] == "None"
    secret = life.server.objects["secrets"]["job-token"]
    assert secret["immutable"]
    assert secret["stringData"].keys() == {"token", "share-token"}
    assert len(set(secret["stringData"].values())) == 2
    for role in ("trainer", "worker", "data-worker"):
        found = told(life, role)
        assert found[environment.SHARE_ADDRESS]["value"] == f"{NAME}.ns.svc:8476"
        reference = found[environment.SHARE_TOKEN]["valueFrom"]["secretKeyRef"]
        assert reference == {"name": "job-token", "key": "share-token"}
    assert told(life, "evaluator") == {}
    assert label(life, "trainer") == ["sweep"]
    assert label(life, "worker") == label(life, "data-worker") == [None]
    assert life.condition("Running")[0] == "True"


def test_a_job_without_a_group_has_nothing_of_it(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    assert NAME not in life.server.objects["services"]
    assert told(life, "trainer") == told(life, "worker") == {}
    assert label(life, "trainer") == [None]
    written = [name for verb, _, name in life.server.calls if verb in {"create", "patch"}]
    assert not any(name.startswith("penstock-share") for name in written)


def test_the_founders_end_takes_out_the_founder_alone_and_the_last_ones_all(life: Life) -> None:
    first = create(life)
    settle(life)
    second = create(life, "other")
    settle(life)
    before = life.server.objects["services"][NAME]["metadata"]["uid"]
    assert owners(life) == [first, second]
    secrets = [life.server.objects["secrets"][f"{one}-token"]["stringData"] for _, one in KEYS]
    assert secrets[0]["share-token"] == secrets[1]["share-token"]
    assert secrets[0]["token"] != secrets[1]["token"]
    life.server.remove("elasticjobs", "job")
    settle(life)
    assert owners(life) == [second]
    assert life.server.objects["services"][NAME]["metadata"]["uid"] == before
    assert told(life, "worker").keys() == OURS, "the other goes on"
    life.server.remove("elasticjobs", "other")
    settle(life)
    for kind in ("services", "secrets", "pods"):
        assert set(life.server.objects[kind]) <= {"penstock-job-key"}


def test_what_is_deleted_by_hand_comes_back_as_it_was(life: Life) -> None:
    uid = create(life)
    life.settle()
    before = life.server.objects["services"][NAME]["spec"]
    life.server.remove("services", NAME)
    life.restart()
    life.server.advance(1)
    life.find_missing_objects()
    life.settle()
    assert owners(life) == [uid]
    assert life.server.objects["services"][NAME]["spec"] == before


def test_a_service_of_somebody_else_is_named_and_the_job_runs_unshared(life: Life) -> None:
    theirs = {"selector": {"app": "mine"}, "clusterIP": "None"}
    life.server.put("services", {"metadata": {"name": NAME, "labels": {}}, "spec": theirs})
    before = dict(life.server.objects["services"][NAME]["metadata"])
    create(life)
    life.settle()
    life.server.advance(20)
    life.find_missing_objects()
    life.settle()
    assert life.server.objects["services"][NAME]["metadata"] == before, "it is left as it was"
    assert told(life, "trainer") == told(life, "worker") == {}
    assert label(life, "trainer") == [None]
    assert life.condition("Accepted")[0] == life.condition("Running")[0] == "True"
    said = [
        one["message"]
        for one in life.server.objects["events"].values()
        if one["reason"] == "NotShared"
    ]
    assert len(said) == 1
    assert NAME in said[0]
    assert "shares nothing" in said[0]


def test_a_service_that_was_turned_elsewhere_is_not_the_groups_any_more(life: Life) -> None:
    create(life)
    life.settle()
    life.server.edit("services", NAME, lambda one: one["spec"].update(selector={"app": "mine"}))
    create(life, "other")
    settle(life)
    workers = [
        one for one in life.pods("worker") if one["metadata"]["labels"][labels.JOB] == "other"
    ]
    assert not any(one["name"] in OURS for one in workers[0]["spec"]["containers"][0]["env"])


@pytest.mark.parametrize("fault", ["crash-before", "crash-after", "lose", "blind"])
def test_a_controller_that_dies_at_any_call_ends_at_the_same_group(life: Life, fault: str) -> None:
    """Also where it dies between joining its group and making the first pod."""
    for number in range(1, 40):
        one = Life()
        try:
            uid = create(one)
            one.deliver()
            # misc: the default binds the number of this turn.
            one.fault = lambda call, at=number: fault if call == at else None  # type: ignore[misc]
            for _ in range(3):
                one.one_pass()
            one.fault = lambda _: None
            settle(one)
            assert owners(one) == [uid]
            assert told(one, "trainer").keys() == told(one, "worker").keys() == OURS
        finally:
            one.close()


def test_each_namespace_has_groups_of_its_own() -> None:
    server = FakeServer()
    made = JobTokens(cast("Api", FakeApi(server, lambda _: None)), "ns")
    tokens = {
        asyncio.run(made.of_group(namespace, group))
        for namespace, group in (("a", "sweep"), ("b", "sweep"), ("a", "other"))
    }
    assert len(tokens) == 3
    assert asyncio.run(made.of_group("a", "sweep")) in tokens
    assert asyncio.run(made.of("share/a/sweep")) in tokens, "no uid has slashes in it"
