"""The models say of every recorded object what the server said, as far as one field decides it.

Rules between fields and on changes are the server's; a model must not refuse on their account.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.base.fields import (
    POSITIVE_INT_OR_STRING_RULE,
    POSITIVE_STRING_RULE,
    QUANTITY_RULE,
    RANKS_RULE,
)
from penstock.base.structural import Model
from penstock.crds.check import faults_of
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.job_status import ElasticJobStatus
from penstock.crds.scale import SCALE, ScaleStatus
from tests.crds.replay import reason_to_leave_out, replayed
from tests.crds.vectors import Vector, load

RULES_THAT_MODELS_KNOW = {
    rule.message
    for rule in (QUANTITY_RULE, POSITIVE_INT_OR_STRING_RULE, POSITIVE_STRING_RULE, RANKS_RULE)
}
RESOURCES = {"elasticjobs": ELASTICJOB.model, "scales": SCALE.model}
STATUSES: dict[str, type[Model]] = {"elasticjobs": ElasticJobStatus, "scales": ScaleStatus}

CREATED = [
    vector
    for vector in load()
    if vector.facts["operation"] == "create" and reason_to_leave_out(vector) is None
]
STATUS_WRITES = [
    vector
    for vector in load()
    if vector.facts["operation"] == "patch-status" and vector.facts["object"]["status"] is not None
]


def one_field_decides(vector: Vector) -> bool:
    """Whether the schema, or a rule that the models know, is among what is wrong."""
    rules = all_rule_messages(vector)
    return any(
        message not in rules or message in RULES_THAT_MODELS_KNOW
        for message in replayed(vector).messages
    )


def all_rule_messages(vector: Vector) -> set[str]:
    model = RESOURCES[vector.facts["resource"]]
    found: set[str] = set()
    pending: list[Any] = [model.model_json_schema()]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            found |= {rule["message"] for rule in node.get("x-kubernetes-validations", [])}
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


def named_alike(ours: str, theirs: str) -> bool:
    """Whether one path is the other or leads to it, however keys of maps are written."""
    left, right = (path.replace("[", ".").replace("]", "") for path in (ours, theirs))
    return f"{left}.".startswith(f"{right}.") or f"{right}.".startswith(f"{left}.")


def assert_agrees(model: type[Model], document: Any, vector: Vector, prefix: str = "") -> None:
    strict = vector.facts.get("query", {}).get("fieldValidation") == "Strict"
    if vector.accepted or strict or not one_field_decides(vector):
        model.model_validate(document)
        return
    with pytest.raises(ValidationError) as refusal:
        model.model_validate(document)
    fields = [prefix + fault.field for fault in faults_of(refusal.value)]
    assert any(named_alike(field, expected) for field in fields for expected in vector.fields)


@pytest.mark.parametrize("vector", CREATED, ids=lambda vector: vector.name)
def test_a_model_refuses_what_the_server_refused_and_names_the_field(vector: Vector) -> None:
    assert_agrees(RESOURCES[vector.facts["resource"]], vector.facts["object"], vector)


@pytest.mark.parametrize("vector", STATUS_WRITES, ids=lambda vector: vector.name)
def test_a_status_model_refuses_what_the_server_refused(vector: Vector) -> None:
    status = vector.facts["object"]["status"]
    assert_agrees(STATUSES[vector.facts["resource"]], status, vector, "status.")


@pytest.mark.parametrize(
    "vector",
    [vector for vector in CREATED if vector.accepted and vector.facts["result"]],
    ids=lambda vector: vector.name,
)
def test_a_model_fills_in_what_the_server_filled_in(vector: Vector) -> None:
    model = RESOURCES[vector.facts["resource"]]
    submitted = model.model_validate(vector.facts["object"])
    stored = model.model_validate({**vector.facts["object"], "spec": vector.facts["result"]})
    assert submitted == stored


@pytest.mark.parametrize("name", ["minimal job", "minimal Scale"])
def test_what_a_model_writes_is_what_the_server_stores(name: str) -> None:
    vector = next(vector for vector in CREATED if vector.name == name)
    model = RESOURCES[vector.facts["resource"]].model_validate(vector.facts["object"])
    written = model.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert written["spec"] == vector.facts["result"]
