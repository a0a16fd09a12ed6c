"""Every error as ``application/problem+json``: one table from exception to stable type."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import (
    TimeoutError as PoolTimeoutError,
)
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from penstock.api.auth import ForbiddenError, UnauthenticatedError
from penstock.api.etags import EtagError
from penstock.api.paging import CursorError
from penstock.brain import errors
from penstock.brain.plan_check import PlanRefusedError
from penstock.brain.planning import PlanningError
from penstock.brain.registry import AlgorithmParametersError, UnknownAlgorithmError
from penstock.brain.service.plans import ClusterRefusedError, ClusterUnavailableError
from penstock.brain.service.sample_writer import OverloadedError
from penstock.brain.store.database import DatabaseError
from penstock.scheduler.errors import InvalidRequestError
from penstock.throughput.errors import ProfileError
from penstock.wire.problems import PROBLEM_MEDIA_TYPE, FieldProblem, Problem, ProblemType

logger = logging.getLogger(__name__)
_MOST_ERRORS: Final = 20
_RETRY_SECONDS: Final = "2"

_KNOWN: Final[Mapping[type[Exception], tuple[int, ProblemType, str]]] = {
    UnauthenticatedError: (401, ProblemType.UNAUTHENTICATED, "Who calls is not known"),
    ForbiddenError: (403, ProblemType.FORBIDDEN, "This is not allowed"),
    errors.JobNotFoundError: (404, ProblemType.JOB_NOT_FOUND, "There is no such job"),
    errors.PlanNotFoundError: (404, ProblemType.PLAN_NOT_FOUND, "There is no such plan"),
    errors.NoPlanError: (404, ProblemType.NO_PLAN, "The job has no plan"),
    errors.NoOverrideError: (404, ProblemType.NO_OVERRIDE, "No override is in force"),
    errors.NoProfileError: (404, ProblemType.NO_PROFILE, "Nothing was measured yet"),
    errors.NoLedgerError: (404, ProblemType.NO_LEDGER, "No ledger is stored"),
    errors.NoWorkloadError: (404, ProblemType.NO_WORKLOAD, "The cluster's pods are not known"),
    errors.HistoryError: (422, ProblemType.HISTORY, "The history does not bear an answer"),
    errors.NodeNotFoundError: (404, ProblemType.NODE_NOT_FOUND, "There is no such node"),
    UnknownAlgorithmError: (404, ProblemType.ALGORITHM_NOT_FOUND, "There is no such algorithm"),
    errors.JobFinishedError: (409, ProblemType.JOB_FINISHED, "The job has ended"),
    errors.JobConflictError: (409, ProblemType.JOB_CONFLICT, "The uid belongs to another job"),
    errors.StaleLedgerError: (409, ProblemType.STALE_LEDGER, "A newer ledger is stored"),
    errors.IdempotencyConflictError: (
        409,
        ProblemType.IDEMPOTENCY_CONFLICT,
        "The key was used for another request",
    ),
    ClusterRefusedError: (409, ProblemType.CLUSTER_REFUSED, "The cluster refuses it"),
    errors.PreconditionFailedError: (
        412,
        ProblemType.PRECONDITION_FAILED,
        "The plan has changed",
    ),
    PlanRefusedError: (422, ProblemType.PLAN_REFUSED, "The job may not become that"),
    PlanningError: (422, ProblemType.PLAN_REFUSED, "The job may not become that"),
    AlgorithmParametersError: (
        422,
        ProblemType.INVALID_REQUEST,
        "The algorithm refuses a parameter",
    ),
    errors.CostRangeError: (422, ProblemType.INVALID_REQUEST, "The time range cannot be used"),
    InvalidRequestError: (422, ProblemType.INVALID_REQUEST, "The cluster has no such nodes"),
    ProfileError: (
        422,
        ProblemType.INVALID_REQUEST,
        "The profile, or what was asked about it, cannot be",
    ),
    CursorError: (422, ProblemType.INVALID_REQUEST, "The cursor is not valid"),
    EtagError: (400, ProblemType.INVALID_REQUEST, "The header cannot be read"),
    ClusterUnavailableError: (503, ProblemType.UNAVAILABLE, "The cluster cannot be reached"),
    OverloadedError: (503, ProblemType.UNAVAILABLE, "Too much is going on"),
    DatabaseError: (503, ProblemType.UNAVAILABLE, "The database cannot be used"),
    SQLAlchemyError: (503, ProblemType.UNAVAILABLE, "The database cannot be reached"),
    TimeoutError: (503, ProblemType.UNAVAILABLE, "It took too long"),
}

_MAY_PASS: Final = frozenset({"08", "40", "53", "55", "57", "58", "XX"})
"""Classes of SQLSTATE: connection, rollback, resources, state, operator, system, internal."""

_BY_STATUS: Final[Mapping[int, tuple[ProblemType, str]]] = {
    400: (ProblemType.INVALID_REQUEST, "The request cannot be read"),
    404: (ProblemType.NOT_FOUND, "There is no such thing"),
    405: (ProblemType.METHOD_NOT_ALLOWED, "The method does not exist here"),
    413: (ProblemType.TOO_LARGE, "The body is too large"),
    415: (ProblemType.UNSUPPORTED_MEDIA_TYPE, "The media type is not the one expected"),
}


def install(app: FastAPI) -> None:
    """Make the application answer every error as a problem."""
    for kind in _KNOWN:
        app.add_exception_handler(kind, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _left)
    app.add_exception_handler(Exception, _unexpected)


async def refusal(request: Request, error: Exception) -> Response | None:
    """The answer to an error outside of the application; None if it is not one of ours."""
    if not isinstance(error, tuple(_KNOWN)):
        return None
    return await _known(request, error)


def response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The HTTP answer for a problem."""
    return Response(
        content=json.dumps(problem.model_dump(exclude_none=True)),
        status_code=problem.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=dict(headers or {}),
    )


async def _known(request: Request, error: Exception) -> Response:
    status, kind, title = next(_KNOWN[each] for each in type(error).__mro__ if each in _KNOWN)
    if isinstance(error, SQLAlchemyError):
        logger.error("%s %s: %s", request.method, request.url.path, error)
        if not _may_pass(error):
            return await _unexpected(request, error)
        detail = "the store did not answer as it should; the service's log says more"
    else:
        detail = str(error)
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = _RETRY_SECONDS
    found = (
        [FieldProblem(field=error.field, rule=error.rule, value=error.value)]
        if isinstance(error, PlanRefusedError)
        else []
    )
    return response(
        Problem(type=kind.value, title=title, status=status, detail=detail[:2000], errors=found),
        headers,
    )


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        FieldProblem(
            field=".".join(str(part) for part in problem["loc"]),
            rule=problem["msg"],
            # Of a field that is missing pydantic gives what is round it.
            value=None if problem["type"] == "missing" else _shown(problem.get("input")),
        )
        for problem in error.errors()[:_MOST_ERRORS]
    ]
    if isinstance(error.body, bytes):  # not read as JSON, for its type says that it is none
        kind = request.headers.get("content-type")
        rule = "a body must be sent with Content-Type: application/json"
        found = [FieldProblem(field="header.content-type", rule=rule, value=_shown(kind))]
    status = 400 if any(each["type"] == "json_invalid" for each in error.errors()) else 422
    return response(
        Problem(
            type=ProblemType.INVALID_REQUEST.value,
            title="The request is not what it must be",
            status=status,
            detail=f"{found[0].field}: {found[0].rule}" if found else "",
            errors=found,
        )
    )


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind, title = _BY_STATUS.get(error.status_code, (ProblemType.INTERNAL, "It did not work"))
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"{request.url.path} does not exist; /docs lists what does"
    return response(
        Problem(type=kind.value, title=title, status=error.status_code, detail=detail),
        error.headers,
    )


async def _left(request: Request, error: Exception) -> Response:
    # Nobody is there to be answered; it is no fault of this service.
    logger.debug("%s %s: the caller left within its request", request.method, request.url.path)
    return Response(status_code=400)


async def _unexpected(request: Request, error: Exception) -> Response:
    # The server logs the exception with its traceback: Starlette raises it again.
    return response(
        Problem(
            type=ProblemType.INTERNAL.value,
            title="A fault of this service",
            status=500,
            detail="the service's log says more",
        )
    )


def _may_pass(error: SQLAlchemyError) -> bool:
    """Whether the database did not do what it could do later: lost, full, in use, shut down.

    Otherwise it, or the library before it, refused a statement or a value, and would again.
    """
    if isinstance(error, OperationalError | InterfaceError | InternalError | PoolTimeoutError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    # asyncpg has no class for either: the first two characters of SQLSTATE tell.
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return state[:2] in _MAY_PASS


def _shown(value: Any) -> Any:
    if isinstance(value, bool | int) or value is None:
        return value if value is None or isinstance(value, bool) or abs(value) < 2**63 else "..."
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = value if isinstance(value, str) else repr(value)
    # Unpaired surrogates come in through JSON escapes and cannot leave as UTF-8.
    return text[:120].encode("utf-8", errors="replace").decode()
