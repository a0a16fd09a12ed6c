"""What a trainer may do: the generated role and policies give the recorded verdicts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from penstock.crds.policy import trainer_policy
from penstock_cluster.registry.admission.policy_strategy import AdmissionPolicyStrategy
from tests.crds import admission, cel
from tests.crds.schemas import schema_of
from tests.crds.vectors import Vector, load

VECTORS = load("policy-vectors.json")
OBJECTS = {(item["kind"], item["metadata"]["name"]): item for item in trainer_policy()}
REQUESTS = {  # operation: API group, resource, verb
    "create": ("penstock.dev", "scales", "create"),
    "update": ("penstock.dev", "scales", "patch"),
    "delete": ("penstock.dev", "scales", "delete"),
    "patch-status": ("penstock.dev", "scales/status", "patch"),
    "list": ("penstock.dev", "scales", "list"),
    "read-job": ("penstock.dev", "elasticjobs/status", "get"),
    "list-pods": ("", "pods", "list"),
    "list-secrets": ("", "secrets", "list"),
}


def is_allowed(vector: Vector) -> bool:
    """Whether the ClusterRole, where it is bound, allows the verb."""
    group, resource, verb = REQUESTS[vector.facts["operation"]]
    rules = OBJECTS["ClusterRole", "penstock-trainer"]["rules"]
    return vector.facts["namespace"] in vector.facts["boundIn"] and any(
        group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
        for rule in rules
    )


def refusals(name: str, variables: dict[str, Any]) -> list[str]:
    """What one policy says of a request."""
    policy = OBJECTS["ValidatingAdmissionPolicy", name]["spec"]
    conditions = [condition["expression"] for condition in policy["matchConditions"]]
    if not all(cel.evaluate(expression, **variables) for expression in conditions):
        return []
    known = {**variables, "variables": {}}
    for variable in policy["variables"]:
        known["variables"][variable["name"]] = cel.evaluate(variable["expression"], **known)
    return [
        str(cel.evaluate(validation["messageExpression"], **known))
        if "messageExpression" in validation
        else validation["message"]
        for validation in policy["validations"]
        if not cel.evaluate(validation["expression"], **known)
    ]


def verdict_of(vector: Vector) -> tuple[str | None, list[str]]:
    """Who refuses, and in which words."""
    if not is_allowed(vector):
        return "rbac", []
    if vector.facts["operation"] not in ("create", "patch-status"):
        return None, []
    stored, faults, policy = written(vector)
    if faults:  # the server answers with the schema's faults first
        return "schema", faults
    namespace, account = vector.facts["serviceAccount"].split("/")
    username = f"system:serviceaccount:{namespace}:{account}"
    request = {"namespace": vector.facts["namespace"], "userInfo": {"username": username}}
    said = refusals(policy, {"request": request, **stored})
    return ("policy", said) if said else (None, [])


def written(vector: Vector) -> tuple[dict[str, Any], list[str], str]:
    """The object and the old one after the write, what the schema says, and whose turn it is."""
    schema = schema_of("Scale")
    if vector.facts["operation"] == "create":
        created = admission.create(schema, vector.facts["object"])
        return {"object": created.document}, created.messages, "penstock-trainer-scales"
    old = admission.create(schema, vector.facts["before"]).document
    if "status" in vector.facts["before"]:
        status = {"status": vector.facts["before"]["status"]}
        old = admission.update_status(schema, old, status).document
    new = admission.update_status(schema, old, vector.facts["object"])
    objects = {"object": new.document, "oldObject": old}
    return objects, new.messages, "penstock-trainer-scale-status"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_verdict_is_as_recorded(vector: Vector) -> None:
    refused_by, _ = verdict_of(vector)
    assert refused_by == vector.facts.get("refusedBy")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "another job",
            "a trainer creates Scales for its own job only: spec.jobRef.name must be mnist",
        ),
        ("source User", "a trainer's Scale must have spec.source Brain"),
        ("policy Pin", "a trainer's Scale must have spec.policy Apply"),
        (
            "another namespace, bound there by mistake",
            "a trainer creates Scales in its own namespace only, which is crdform-a",
        ),
        ("Applied on its own Scale", "a trainer sets no condition but Prepared"),
        (
            "Prepared on another job's Scale",
            "a trainer writes the status of its own job's Scales only",
        ),
    ],
)
def test_a_refusal_says_what_would_be_right(name: str, said: str) -> None:
    vector = next(vector for vector in VECTORS if vector.name == name)
    assert verdict_of(vector) == ("policy", [said])


def test_a_trainer_does_not_change_the_preview() -> None:
    username = "system:serviceaccount:ns:mnist-trainer"
    scale = {"spec": {"jobRef": {"name": "mnist"}}, "status": {"preview": {"created": ["ps-0"]}}}
    variables = {
        "request": {"namespace": "ns", "userInfo": {"username": username}},
        "object": scale,
        "oldObject": {"spec": scale["spec"]},
    }
    said = refusals("penstock-trainer-scale-status", variables)
    assert said == ["a trainer does not change status.preview"]


PROBLEM = {
    "reason": "CheckpointsNotWritten",
    "source": "worker-0",
    "message": "no space",
    "since": "2026-01-01T12:00:00Z",
}
CONDITION = {
    "type": "Failed",
    "status": "False",
    "reason": "NotFinished",
    "message": "",
    "lastTransitionTime": "2026-01-01T12:00:00Z",
}
WRITTEN = {
    "observedGeneration": 1,
    "conditions": [CONDITION],
    "state": "Running",
    "ranks": {"worker": {"0": {"incarnation": 1}}},
    "trainer": {"incarnation": 2},
}


def said_of_job_status(
    before: Any, after: Any, *, job: str = "mnist", namespace: str = "ns"
) -> Any:
    """What the policy says when the trainer of ns/mnist writes a job's status."""
    username = "system:serviceaccount:ns:mnist-trainer"
    metadata = {"name": job, "namespace": namespace}
    objects = {
        name: {"metadata": metadata} if status is None else {"metadata": metadata, "status": status}
        for name, status in (("oldObject", before), ("object", after))
    }
    request = {"namespace": namespace, "userInfo": {"username": username}}
    return refusals("penstock-trainer-job-status", {"request": request, **objects})


@pytest.mark.parametrize("before", [None, WRITTEN, {**WRITTEN, "problems": [PROBLEM]}])
@pytest.mark.parametrize("problems", [[], [PROBLEM], [{**PROBLEM, "fatal": True}]])
def test_a_trainer_writes_the_problems_of_its_own_job(before: Any, problems: Any) -> None:
    assert said_of_job_status(before, {**(before or {}), "problems": problems}) == []


OTHERWISE = {
    "observedGeneration": 2,
    "conditions": [{**CONDITION, "status": "True"}],
    "state": "Succeeded",
    "ranks": {"worker": {"0": {"incarnation": 2}}},
    "trainer": {"incarnation": 3},
    "completionTime": "2026-01-01T12:00:00Z",
}


@pytest.mark.parametrize("field", OTHERWISE)
def test_a_trainer_changes_no_other_field_of_the_status(field: str) -> None:
    changed = {**WRITTEN, field: OTHERWISE[field]}
    expected = [f"a trainer does not change status.{field}"]
    assert said_of_job_status(WRITTEN, changed) == expected
    if field in WRITTEN:
        removed = {name: value for name, value in WRITTEN.items() if name != field}
        assert said_of_job_status(WRITTEN, removed) == expected


def test_no_field_of_the_status_is_forgotten() -> None:
    told = OBJECTS["ValidatingAdmissionPolicy", "penstock-trainer-job-status"]["spec"]
    named = {one["message"].rpartition(".")[2] for one in told["validations"]}
    fields = schema_of("ElasticJob")["properties"]["status"]["properties"].keys()
    assert fields - named == {"problems", "input", "estimatedCompletionTime"}


@pytest.mark.parametrize(("job", "namespace"), [("other", "ns"), ("mnist", "elsewhere")])
def test_a_trainer_writes_no_other_jobs_status(job: str, namespace: str) -> None:
    said = said_of_job_status({}, {"problems": [PROBLEM]}, job=job, namespace=namespace)
    assert said == ["a trainer writes the status of its own job only"]


def test_the_controller_is_not_held_to_the_trainers_policy() -> None:
    username = "system:serviceaccount:penstock-system:penstock-controller"
    request = {"namespace": "ns", "userInfo": {"username": username}}
    job = {"metadata": {"name": "mnist"}, "status": WRITTEN}
    variables = {"request": request, "object": job, "oldObject": {"metadata": {"name": "mnist"}}}
    assert refusals("penstock-trainer-job-status", variables) == []


def test_every_policy_is_in_force() -> None:
    bound = {
        item["spec"]["policyName"]: item["spec"]["validationActions"]
        for (kind, _), item in OBJECTS.items()
        if kind == "ValidatingAdmissionPolicyBinding"
    }
    policies = {name for kind, name in OBJECTS if kind == "ValidatingAdmissionPolicy"}
    assert bound == {name: ["Deny"] for name in policies}
    assert all(
        item["spec"]["failurePolicy"] == "Fail"
        for (kind, _), item in OBJECTS.items()
        if kind == "ValidatingAdmissionPolicy"
    )


def test_the_server_adds_nothing_that_another_applier_would_have_to_own() -> None:
    """``matchConstraints`` is one field to server-side apply: a default in it is a conflict."""
    strategy = AdmissionPolicyStrategy()
    policies = [one for (kind, _), one in OBJECTS.items() if "Policy" in kind]
    assert len(policies) >= 4
    for one in policies:
        stored = copy.deepcopy(one)
        strategy.default(stored)
        assert stored == one
