"""Every bound of every field: the last value within it passes, the first beyond it is refused.

The cases are taken from the generated schemas, and put to the schema and to the model alike; a
person reads the message that the model gives.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.base.enums import Role
from penstock.crds.check import faults_in
from tests.crds import admission
from tests.crds.schemas import JOB, SCALE_OBJECT, TEMPLATE, schema_of

AT = "2026-01-01T00:00:00Z"
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Because",
    "message": "",
    "lastTransitionTime": AT,
}
FILLED: dict[str, dict[str, Any]] = {
    "ElasticJob": {
        **JOB,
        "spec": {
            "strategy": "ParameterServer",
            "replicaSpecs": {role.value: {"template": TEMPLATE} for role in Role},
            "trainer": {"template": {"spec": {}}},
        },
        "status": {"conditions": [CONDITION]},
    },
    "Scale": {**SCALE_OBJECT, "status": {"conditions": [CONDITION]}},
}
"""Objects in which the parents of every field can be made without breaking a rule."""


@dataclass(frozen=True)
class Bound:
    """One bound of one field: values just within it and just beyond it, and what is said then."""

    kind: str
    path: tuple[str | int, ...]
    keyword: str
    within: Any
    beyond: Any
    message: str

    def __str__(self) -> str:
        return f"{self.kind}.{'.'.join(map(str, self.path))}-{self.keyword}"


def leaves(schema: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[tuple[Any, Any]]:
    """Every node of a schema with a path at which a value of it may stand."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        yield from leaves(child, (*path, name))
    if "additionalProperties" in schema:
        key = "cpu" if path[-1] == "resourceLimits" else "7"
        yield from leaves(schema["additionalProperties"], (*path, key))
    if "items" in schema:
        yield from leaves(schema["items"], (*path, 0))


def bounds() -> Iterator[Bound]:
    for kind in ("ElasticJob", "Scale"):
        for path, schema in leaves(schema_of(kind), ()):
            for keyword, limit in schema.items():
                if keyword in ("minimum", "maximum"):
                    yield Bound(kind, path, keyword, *number(keyword, limit))
                elif keyword in ("minLength", "maxLength"):
                    yield Bound(kind, path, keyword, *text(keyword, limit, schema))
                elif keyword in ("minItems", "maxItems"):
                    yield Bound(kind, path, keyword, *items(keyword, limit, path))
                elif keyword == "enum":
                    yield Bound(kind, path, keyword, limit[0], "Other", f"should be '{limit[0]}'")


def number(keyword: str, limit: int) -> tuple[int, int, str]:
    if keyword == "minimum":
        return limit, limit - 1, f"should be greater than or equal to {limit}, got {limit - 1}"
    return limit, limit + 1, f"should be less than or equal to {limit}, got {limit + 1}"


def text(keyword: str, limit: int, schema: dict[str, Any]) -> tuple[str, str, str]:
    if keyword == "minLength":
        return sample(schema, limit), "", "should have at least 1 character, got ''"
    beyond = sample(schema, limit + 1)
    return sample(schema, limit), beyond, f"should have at most {limit} characters, got"


def sample(schema: dict[str, Any], length: int) -> str:
    """A text of that length that breaks none of the schema's other bounds."""
    texts = ("1" * length, "A" * length, "a/" + "b" * max(length - 2, 1), "/" + "b" * (length - 1))
    label = "a" * (length - 64) + "/" + "b" * 63
    fitting = (
        one for one in ("a" * length, *texts, label) if re.search(schema.get("pattern", ""), one)
    )
    return next(fitting, "a" * length)


def items(keyword: str, limit: int, path: tuple[Any, ...]) -> tuple[list[Any], list[Any], str]:
    def of(count: int) -> list[Any]:
        if path[-1] == "conditions":
            return [{**CONDITION, "type": f"Type{index}"} for index in range(count)]
        if path[-1] in ("containers", "volumes"):
            return [{"name": f"n{index}"} for index in range(count)]
        if path[-1] == "boundaries":
            return list(range(1, count + 1))
        if path[-1] == "paths":
            return [f"/data/{index}" for index in range(count)]
        return [f"n-{index}" for index in range(count)]

    if keyword == "minItems":
        return of(limit), of(limit - 1), f"should have at least {limit} item; there are 0"
    return of(limit), of(limit + 1), f"should have at most {limit} items; there are {limit + 1}"


def placed(bound: Bound, value: Any) -> dict[str, Any]:
    """The filled object with a value in the bound's place."""
    document = copy.deepcopy(FILLED[bound.kind])
    at: Any = document
    for step, following in zip(bound.path, bound.path[1:], strict=False):
        empty: Any = [] if isinstance(following, int) else {}
        at = child(at, step, empty)
    if isinstance(at, list) and not at:
        at.append(value)
    else:
        at[bound.path[-1]] = value
    return document


def child(parent: Any, step: int | str, empty: Any) -> Any:
    """What is at that step, made if it is not there."""
    if isinstance(parent, list):
        parent.extend([] if parent else [empty])
        return parent[int(step)]
    return parent.setdefault(step, empty)


BOUNDS = list(bounds())


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_the_last_value_within_a_bound_passes(bound: Bound) -> None:
    document = placed(bound, bound.within)
    field = spelt(bound)
    assert [fault for fault in schema_faults(document) if fault == field] == []
    assert [fault for fault in faults_in(document) if fault.field == field] == []


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_the_first_value_beyond_a_bound_is_refused_by_schema_and_model(bound: Bound) -> None:
    document = placed(bound, bound.beyond)
    field = spelt(bound)
    assert field in schema_faults(document)
    messages = [fault.message for fault in faults_in(document) if fault.field == field]
    assert len(messages) == 1
    assert bound.message in messages[0]


def spelt(bound: Bound) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in bound.path
    ).lstrip(".")


def schema_faults(document: dict[str, Any]) -> list[str]:
    """Fields that the schema finds fault with, the status included and CEL rules left aside."""
    schema = schema_of(document["kind"])
    return [path for path, _, _ in admission.schema_faults(schema, document, "")]


def test_the_cases_cover_the_resources() -> None:
    fields = {spelt(bound) for bound in BOUNDS}
    assert len(BOUNDS) > 250
    assert {"spec.replicaSpecs.ps.replicas", "status.conditions", "spec.jobRef.uid"} <= fields
