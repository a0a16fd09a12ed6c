"""Errors on the wire: ``application/problem+json`` (RFC 9457) with types that stay the same."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"


class ProblemType(StrEnum):
    """Every kind of error, as the `type` of a problem. Programs may match on it."""

    INVALID_REQUEST = "urn:penstock:problem:invalid-request"
    UNAUTHENTICATED = "urn:penstock:problem:unauthenticated"
    FORBIDDEN = "urn:penstock:problem:forbidden"
    NOT_FOUND = "urn:penstock:problem:not-found"
    JOB_NOT_FOUND = "urn:penstock:problem:job-not-found"
    PLAN_NOT_FOUND = "urn:penstock:problem:plan-not-found"
    NO_PLAN = "urn:penstock:problem:no-plan"
    NO_LEDGER = "urn:penstock:problem:no-ledger"
    NO_PROFILE = "urn:penstock:problem:no-profile"
    NO_WORKLOAD = "urn:penstock:problem:no-workload"
    NO_OVERRIDE = "urn:penstock:problem:no-override"
    HISTORY = "urn:penstock:problem:history"
    ALGORITHM_NOT_FOUND = "urn:penstock:problem:algorithm-not-found"
    NODE_NOT_FOUND = "urn:penstock:problem:node-not-found"
    METHOD_NOT_ALLOWED = "urn:penstock:problem:method-not-allowed"
    JOB_FINISHED = "urn:penstock:problem:job-finished"
    JOB_CONFLICT = "urn:penstock:problem:job-conflict"
    STALE_LEDGER = "urn:penstock:problem:stale-ledger"
    IDEMPOTENCY_CONFLICT = "urn:penstock:problem:idempotency-conflict"
    PRECONDITION_FAILED = "urn:penstock:problem:precondition-failed"
    PLAN_REFUSED = "urn:penstock:problem:plan-refused"
    TOO_LARGE = "urn:penstock:problem:too-large"
    UNSUPPORTED_MEDIA_TYPE = "urn:penstock:problem:unsupported-media-type"
    TOO_MANY_REQUESTS = "urn:penstock:problem:too-many-requests"
    CLUSTER_REFUSED = "urn:penstock:problem:cluster-refused"
    UNAVAILABLE = "urn:penstock:problem:unavailable"
    INTERNAL = "urn:penstock:problem:internal"


class FieldProblem(BaseModel):
    """One field at fault."""

    field: str
    """Where: ``body.samples.0.step``, ``query.limit``, ``header.If-Match``."""
    rule: str
    """What it must be."""
    value: Any = None
    """What it was, shortened where long."""


class Problem(BaseModel):
    """An error. Clients ignore fields they do not know."""

    type: str
    """One of the stable types."""
    title: str
    """The type in words."""
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str = ""
    """What was wrong this time and what to do about it."""
    errors: list[FieldProblem] = []
