"""The generated CRDs answer every recorded request as the recorded server did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crds.admission import Verdict
from tests.crds.replay import reason_to_leave_out, replayed
from tests.crds.vectors import Vector, load

VECTORS = [vector for vector in load() if reason_to_leave_out(vector) is None]


def is_strict(vector: Vector) -> bool:
    return bool(vector.facts.get("query", {}).get("fieldValidation") == "Strict")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_verdict_field_and_result_are_as_recorded(vector: Vector) -> None:
    verdict = replayed(vector)
    if is_strict(vector) and not vector.accepted:
        assert verdict.unknown
        return
    assert verdict.fields == (set() if vector.accepted else vector.fields)
    if vector.accepted and vector.facts["result"] is not None:
        assert stored_part(vector, verdict) == vector.facts["result"]
    if "warnings" in vector.facts:
        warnings = [f'unknown field "{path}"' for path in verdict.unknown]
        assert sorted(warnings) == sorted(vector.facts["warnings"])


def stored_part(vector: Vector, verdict: Verdict) -> Any:
    """The part of the stored object that the server's answer was recorded of."""
    operation = vector.facts["operation"]
    if operation == "scale":
        replicas = verdict.document["spec"]["replicaSpecs"]["worker"]["replicas"]
        return {"replicas": replicas} if replicas else {}
    part = vector.facts.get("resultOf", "status" if operation == "patch-status" else "spec")
    return verdict.document.get(part, {})


def test_no_vector_is_left_out_but_those_that_no_schema_decides() -> None:
    reasons = [reason for vector in load() if (reason := reason_to_leave_out(vector))]
    assert len(load()) == 394
    assert len(reasons) == 16
