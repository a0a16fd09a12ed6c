"""The web page at ``/``, its style sheet, and the session that lets a browser show it.

A browser cannot send a bearer token of its own accord, so the token may come in a cookie: for this
page only, which changes nothing, and out of reach of scripts and of other sites. The API does not
look at cookies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.api import paging
from penstock.api.auth import Caller, ForbiddenError, Permission, UnauthenticatedError, Verb
from penstock.api.auth.caller import require
from penstock.api.page import render
from penstock.api.page.comparison import compare
from penstock.api.page.reference import reference
from penstock.api.page.view import (
    JOBS_PER_PAGE,
    PageView,
    cluster_view,
    compared,
    job_line,
    job_view,
)
from penstock.api.paging import Continue
from penstock.api.state import ApiState, State
from penstock.base.enums import JobPhase
from penstock.brain.errors import JobNotFoundError
from penstock.wire.base import NO_NUL, Name

router = APIRouter(include_in_schema=False)
COOKIE: Final = "penstock_token"
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers then say of no form where it comes from, our own included.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MOST_FORM_BYTES: Final = 32 * 1024
_FOREIGN: Final = (
    "That form was sent by another site. If it was this page, the service has to be told its "
    "address: public_url in its configuration."
)


@router.get("/")
async def page(
    request: Request,
    state: State,
    job: Annotated[str | None, Query(max_length=64, pattern=NO_NUL)] = None,
    namespace: Annotated[Name, Query()] = "",
    phase: Annotated[str, Query(max_length=16, pattern=NO_NUL)] = "",
    other: Annotated[str | None, Query(alias="with", max_length=64, pattern=NO_NUL)] = None,
    continue_: Continue = None,
) -> Response:
    """Jobs, one job's timeline, and the nodes."""
    token, session = _token(request)
    try:
        caller = await state.authenticator.authenticate(token)
    except UnauthenticatedError as error:
        problem = str(error) if session else ""
        return HTMLResponse(render.login(problem), 401, _HEADERS)
    view = await _view(state, caller, job, namespace, phase, continue_)
    if job and other:
        view = await _with_other(state, caller, view, job, other)
    return HTMLResponse(render.page(view, caller=caller.name, session=session), 200, _HEADERS)


@router.get("/page.css")
async def stylesheet() -> Response:
    """The style sheet."""
    return Response(
        render.stylesheet(), media_type="text/css", headers={"Cache-Control": "max-age=300"}
    )


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The reference of the API."""
    return HTMLResponse(render.reference(reference(request.app.openapi())), 200, _HEADERS)


@router.post("/session")
async def begin_session(request: Request, state: State) -> Response:
    """Keep the token of the form in a cookie, if somebody knows it."""
    if not state.address.sent_itself(request):
        return HTMLResponse(render.login(_FOREIGN), 403, _HEADERS)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM_BYTES:
            return HTMLResponse(render.login("That is too long for a token."), 413, _HEADERS)
    token = parse_qs(body.decode("utf-8", errors="replace")).get("token", [""])[0].strip()
    if not token or not token.isascii() or any(char.isspace() or char in ';,"\\' for char in token):
        return HTMLResponse(render.login("That is not a token."), 400, _HEADERS)
    try:
        await state.authenticator.authenticate(token)
    except UnauthenticatedError as error:
        return HTMLResponse(render.login(f"{error}."), 401, _HEADERS)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        token,
        httponly=True,
        samesite="strict",
        secure=state.address.is_secure(request),
        path="/",
    )
    return answer


@router.post("/session/end")
async def end_session(request: Request, state: State) -> Response:
    """Forget the token."""
    if not state.address.sent_itself(request):
        return HTMLResponse(render.login(_FOREIGN), 403, _HEADERS)
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict", path="/")
    return answer


def _token(request: Request) -> tuple[str | None, bool]:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip(), False
    cookie = request.cookies.get(COOKIE)
    return cookie, cookie is not None


async def _view(
    state: ApiState,
    caller: Caller,
    uid: str | None,
    namespace: str,
    phase: str,
    continue_: str | None,
) -> PageView:
    brain = state.brain
    filters = {"namespace": namespace, "phase": phase if phase in set(JobPhase) else ""}
    problem = ""
    everywhere = await caller.may(Permission(Verb.LIST))
    allowed = everywhere or (
        bool(namespace) and await caller.may(Permission(Verb.LIST, namespace=namespace))
    )
    rows = []
    if allowed:
        position = paging.decode(continue_, float, str)
        rows = list(
            await brain.jobs.page(
                namespaces=None,
                namespace=namespace or None,
                phase=JobPhase(filters["phase"]) if filters["phase"] else None,
                user=None,
                model=None,
                since=None,
                before=None if position is None else (position[0], position[1]),
                limit=JOBS_PER_PAGE + 1,
            )
        )
    else:
        problem = (
            f"{caller.name} may not list jobs in namespace {namespace}."
            if namespace
            else f"{caller.name} may not list jobs in all namespaces: choose one below."
        )
    chosen = None
    if uid:
        try:
            row = await brain.jobs.get(uid)
            await require(caller, Permission(Verb.GET, namespace=row.namespace, name=row.name))
            chosen = await job_view(brain, row)
        except (JobNotFoundError, ForbiddenError) as error:
            problem = str(error)
    nodes = await caller.may(Permission(Verb.LIST, "clustersnapshots"))
    more = len(rows) > JOBS_PER_PAGE
    rows = rows[:JOBS_PER_PAGE]
    now = brain.clock()
    return PageView(
        jobs=[job_line(row, now, uid) for row in rows],
        following=paging.encode(rows[-1].registered_seconds, rows[-1].uid) if more else None,
        counts=sorted((await brain.jobs.counts()).items()) if everywhere else (),
        job=chosen,
        cluster=await cluster_view(brain) if nodes else None,
        problem=problem,
        filters=filters,
    )


async def _with_other(
    state: ApiState, caller: Caller, view: PageView, uid: str, other: str
) -> PageView:
    """The page with two jobs side by side, if the caller may see both."""
    both = []
    for one in (uid, other):
        try:
            row = await state.brain.jobs.get(one)
            await require(caller, Permission(Verb.GET, namespace=row.namespace, name=row.name))
        except (JobNotFoundError, ForbiddenError) as error:
            return replace(view, problem=str(error))
        both.append(await compared(state.brain, row))
    return replace(view, comparison=compare(*both))
