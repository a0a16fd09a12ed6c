"""The embedded cluster, serving the generated CRDs, answers every recorded request alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.crds.vectors import Vector, load
from tests.local.golden.crd_replay import (
    Verdict,
    send,
    send_as_trainer,
    serve_policies,
    serve_resources,
)

VECTORS = load()
POLICY_VECTORS = load("policy-vectors.json")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        serve_resources(running)
        yield running


@pytest.fixture(scope="module")
def trainers() -> Iterator[tuple[RunningCluster, dict[str, str]]]:
    with api_server(EngineOptions(rbac=True)) as running:
        yield running, serve_policies(running)


def test_all_recorded_requests_are_here() -> None:
    assert (len(VECTORS), len(POLICY_VECTORS)) == (394, 24)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_code_fields_and_result_are_as_recorded(cluster: RunningCluster, vector: Vector) -> None:
    facts = vector.facts
    verdict = send(cluster, vector)
    assert verdict.code == facts["code"], verdict.body
    if verdict.code >= 300:
        recorded = facts.get("fields") or ([facts["field"]] if facts.get("field") else [])
        assert verdict.fields == set(recorded), verdict.body
        return
    if facts["result"] is not None:
        assert stored_part(vector, verdict) == facts["result"]
    if "nameLength" in facts:
        assert len(verdict.body["metadata"]["name"]) == facts["nameLength"]
    assert sorted(verdict.warnings) == sorted(facts.get("warnings", []))


def stored_part(vector: Vector, verdict: Verdict) -> Any:
    """The part of the stored object that was recorded."""
    facts = vector.facts
    of_status = facts["operation"] == "patch-status" or "subresource" in facts
    return verdict.body.get(facts.get("resultOf", "status" if of_status else "spec"), {})


@pytest.mark.parametrize("vector", POLICY_VECTORS, ids=lambda vector: vector.name)
def test_a_trainer_may_do_what_was_recorded(
    trainers: tuple[RunningCluster, dict[str, str]], vector: Vector
) -> None:
    cluster, tokens = trainers
    verdict = send_as_trainer(cluster, vector, tokens[vector.facts["serviceAccount"]])
    assert verdict.code == vector.facts["code"], verdict.body
    assert refused_by(verdict) == vector.facts.get("refusedBy"), verdict.body


def refused_by(verdict: Verdict) -> str | None:
    if verdict.code < 300:
        return None
    if verdict.code == 422:
        return "schema"
    return "policy" if "ValidatingAdmissionPolicy" in verdict.body["message"] else "rbac"
