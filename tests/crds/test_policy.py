"""What a trainer may do: the generated role and policies give the recorded verdicts."""

from typing import Any

import pytest

from penstock.crds.policy import trainer_policy
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
