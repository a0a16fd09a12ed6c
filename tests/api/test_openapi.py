"""The committed OpenAPI document is what the service says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.api.openapi import document
from penstock.wire.problems import ProblemType

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    paths = json.loads(document())["paths"]
    return [(path, method, item) for path in paths for method, item in paths[path].items()]


def test_the_committed_document_is_up_to_date() -> None:
    assert COMMITTED.read_text() == document(), "the API has changed: make generated"


def test_it_is_openapi_3_1_with_tokens_and_problems() -> None:
    content = json.loads(document())
    assert content["openapi"].startswith("3.1")
    for path, method, item in operations():
        if path.startswith("/v1/"):
            assert item["security"] == [{"bearer": []}], (path, method)
            for status, answer in item["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (path, status)


def test_every_operation_and_every_parameter_is_described() -> None:
    for path, method, item in operations():
        assert item.get("description"), (path, method)
        for parameter in item.get("parameters", ()):
            if parameter["name"] in {"uid", "name", "namespace", "user", "model", "phase"}:
                continue  # they say what they are
            described = parameter.get("description") or parameter["schema"].get("description")
            assert described, (path, parameter["name"])


def test_every_field_of_every_object_of_ours_is_bounded() -> None:
    """What comes in is: a request can only hold so much."""
    schemas = json.loads(document())["components"]["schemas"]
    for name in ("JobRegistration", "SampleBatch", "Override", "ClusterSnapshot", "JobFinish"):
        assert schemas[name].get("additionalProperties") is False, name


def test_problem_types_are_stable() -> None:
    assert ProblemType.PRECONDITION_FAILED == "urn:penstock:problem:precondition-failed"
    assert all(kind.startswith("urn:penstock:problem:") for kind in ProblemType)
