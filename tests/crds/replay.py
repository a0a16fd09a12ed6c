"""Sends a recorded request to the model of the API server that the tests have."""

from __future__ import annotations

from typing import Any

from tests.crds import admission
from tests.crds.admission import Verdict
from tests.crds.schemas import schema_of
from tests.crds.vectors import Vector

KINDS = {"elasticjobs": "ElasticJob", "scales": "Scale"}

SIZE = "a limit of the server on the size of a request, which no schema states"
NAME = "a rule of the server on metadata, which no schema states"
OWNERSHIP = "server-side apply: who owns a field is the server's to know"


def reason_to_leave_out(vector: Vector) -> str | None:
    """Why a vector is not about the schema; None: it is."""
    facts = vector.facts
    if facts["operation"] == "apply":
        return OWNERSHIP
    if facts["code"] in (413, 500):
        return SIZE
    if vector.name == "Scale name of 254 characters" or vector.fields == {"metadata.annotations"}:
        return NAME
    return None


def replayed(vector: Vector) -> Verdict:
    """What comes of the recorded request."""
    facts = vector.facts
    schema = schema_of(KINDS[facts["resource"]])
    if facts["operation"] == "create":
        return admission.create(schema, facts["object"])
    stored = admission.create(schema, facts["before"]).document
    if "status" in facts["before"]:
        status = {"status": facts["before"]["status"]}
        stored = admission.update_status(schema, stored, status).document
    if facts["operation"] == "patch-status":
        return admission.update_status(schema, stored, facts["object"])
    if facts["operation"] == "update":
        return admission.update(schema, stored, facts["object"])
    assert facts["operation"] == "scale"
    return admission.update(schema, stored, _at_the_replicas_path(facts["object"]))


def _at_the_replicas_path(scale: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"replicaSpecs": {"worker": {"replicas": scale["spec"]["replicas"]}}}}
