"""What every request handler needs, handed in through FastAPI's dependencies."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, cast

from fastapi import Depends, Request

from penstock.api.auth import Authenticator, Caller, Permission, UnauthenticatedError, Verb
from penstock.api.auth.caller import require
from penstock.api.origins import PublicAddress
from penstock.api.replaying import Replayer
from penstock.api.streams import Streams
from penstock.brain.assembly import Brain
from penstock.crds.group import SCALE_PLURAL
from penstock.wire.base import Uid

_MOST_NAMES: Final = 20_000


@dataclass(slots=True)
class JobNames:
    """Namespace and name of jobs by uid, which never change; the ones used last."""

    _known: OrderedDict[str, tuple[str, str]] = field(default_factory=OrderedDict)

    async def of(self, brain: Brain, uid: str) -> tuple[str, str]:
        """Namespace and name.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        known = self._known.get(uid)
        if known is None:
            row = await brain.jobs.get(uid)
            known = (row.namespace, row.name)
            self._known[uid] = known
            if len(self._known) > _MOST_NAMES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(uid)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiState:
    """The parts of a running service."""

    brain: Brain
    authenticator: Authenticator
    names: JobNames = field(default_factory=JobNames)
    address: PublicAddress = field(default_factory=PublicAddress)
    streams: Streams = field(default_factory=Streams)
    replays: Replayer = field(default_factory=Replayer)


async def api_state(request: Request) -> ApiState:
    """The service that the request came to."""
    return cast("ApiState", request.app.state.penstock)


State = Annotated[ApiState, Depends(api_state)]


async def brain_of(state: State) -> Brain:
    """The Brain behind the service."""
    return state.brain


BrainDep = Annotated[Brain, Depends(brain_of)]


async def caller_of(request: Request, state: State) -> Caller:
    """Who calls.

    Raises:
        UnauthenticatedError: There is no token, or nobody knows it.
    """
    return await caller_of_header(state.authenticator, request.headers.get("authorization"))


async def caller_of_header(authenticator: Authenticator, header: str | None) -> Caller:
    """Who calls with this header of a request.

    Raises:
        UnauthenticatedError: There is no token, or nobody knows it.
    """
    if header is None:
        return await authenticator.authenticate(None)
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError("the header must be 'Authorization: Bearer TOKEN'")
    return await authenticator.authenticate(token.strip())


CallerDep = Annotated[Caller, Depends(caller_of)]


async def _job_access(state: ApiState, caller: Caller, uid: str, verb: Verb) -> Caller:
    namespace, name = await state.names.of(state.brain, uid)
    await require(caller, Permission(verb, namespace=namespace, name=name))
    return caller


async def _scale_access(state: ApiState, caller: Caller, uid: str, verb: Verb) -> Caller:
    namespace, _ = await state.names.of(state.brain, uid)
    await require(caller, Permission(verb, SCALE_PLURAL, namespace=namespace))
    return caller


async def job_reader(uid: Uid, caller: CallerDep, state: State) -> Caller:
    """A caller who may read the job.

    Raises:
        JobNotFoundError: No job has this uid.
        ForbiddenError: The caller is known and may not do this.
    """
    return await _job_access(state, caller, uid, Verb.GET)


async def job_writer(uid: Uid, caller: CallerDep, state: State) -> Caller:
    """A caller who may change the job.

    Raises:
        JobNotFoundError: No job has this uid.
        ForbiddenError: The caller is known and may not do this.
    """
    return await _job_access(state, caller, uid, Verb.UPDATE)


async def scale_creator(uid: Uid, caller: CallerDep, state: State) -> Caller:
    """A caller who may create Scales where the job is, which an override is.

    Raises:
        JobNotFoundError: No job has this uid.
        ForbiddenError: The caller is known and may not do this.
    """
    return await _scale_access(state, caller, uid, Verb.CREATE)


async def scale_deleter(uid: Uid, caller: CallerDep, state: State) -> Caller:
    """A caller who may delete Scales where the job is, which lifting an override is.

    Raises:
        JobNotFoundError: No job has this uid.
        ForbiddenError: The caller is known and may not do this.
    """
    return await _scale_access(state, caller, uid, Verb.DELETE)


JobReader = Annotated[Caller, Depends(job_reader)]
JobWriter = Annotated[Caller, Depends(job_writer)]
ScaleCreator = Annotated[Caller, Depends(scale_creator)]
ScaleDeleter = Annotated[Caller, Depends(scale_deleter)]

PROBLEM_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": text,
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
    for status, text in (
        (400, "The request cannot be read."),
        (401, "No token, or an unknown one."),
        (403, "The caller may not do this."),
        (404, "There is no such thing."),
        (409, "It does not fit what is stored."),
        (412, "The plan has changed since it was read."),
        (413, "The body exceeds 1 MiB."),
        (415, "The body is not of the media type that is expected."),
        (422, "A field is not what it must be."),
        (503, "A part that is needed cannot be reached now; try again."),
    )
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that an endpoint may answer with, for the OpenAPI document."""
    always = (400, 401, 403, 422, 503)
    return {status: PROBLEM_RESPONSES[status] for status in sorted({*always, *statuses})}
