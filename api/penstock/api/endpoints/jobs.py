"""Jobs: register, list, read, end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from penstock.api import paging
from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import ForbiddenError, require
from penstock.api.paging import Continue, Limit
from penstock.api.present.jobs import job as present
from penstock.api.present.jobs import registration
from penstock.api.state import BrainDep, CallerDep, JobReader, JobWriter, problems
from penstock.base.enums import JobPhase
from penstock.brain.errors import JobConflictError
from penstock.wire.base import ListResource, Name, Seconds, Uid
from penstock.wire.jobs import Job, JobFinish, JobRegistration

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.put("/{uid}", responses=problems(409, 413))
async def register_job(uid: Uid, body: JobRegistration, caller: CallerDep, brain: BrainDep) -> Job:
    """Register a job, or what has changed of its description.

    When this answers, the job's first plan exists, or its message says why there is none.
    """
    await require(caller, Permission(Verb.UPDATE, namespace=body.namespace, name=body.name))
    if not await brain.jobs.has(uid) and not await caller.vouches_for(
        uid, body.namespace, body.name
    ):
        raise JobConflictError(
            f"uid = {uid!r}: it is not that of the ElasticJob {body.namespace}/{body.name} in the "
            "cluster"
        )
    return present(await brain.jobs.register(registration(uid, body)))


@router.get("", responses=problems())
async def list_jobs(
    caller: CallerDep,
    brain: BrainDep,
    namespace: Annotated[Name | None, Query()] = None,
    phase: Annotated[JobPhase | None, Query()] = None,
    user: Annotated[Name | None, Query()] = None,
    model: Annotated[Name | None, Query()] = None,
    since: Annotated[Seconds | None, Query(description="Registered at or after.")] = None,
    limit: Limit = 100,
    continue_: Continue = None,
) -> ListResource[Job]:
    """The jobs that the caller may see, newest first."""
    if not await caller.may(Permission(Verb.LIST)):
        if namespace is None:
            raise ForbiddenError(
                f"{caller.name} may not list elasticjobs in all namespaces: "
                "name one with ?namespace="
            )
        await require(caller, Permission(Verb.LIST, namespace=namespace))
    position = paging.decode(continue_, float, str)
    rows = await brain.jobs.page(
        namespaces=None,
        namespace=namespace,
        phase=phase,
        user=user,
        model=model,
        since=since,
        before=None if position is None else (position[0], position[1]),
        limit=limit + 1,
    )
    return paging.page(rows, limit, present, lambda row: [row.registered_seconds, row.uid])


@router.get("/{uid}", responses=problems(404))
async def read_job(uid: Uid, caller: JobReader, brain: BrainDep) -> Job:
    """One job."""
    return present(await brain.jobs.get(uid))


@router.post("/{uid}/finish", responses=problems(404, 409, 413))
async def finish_job(uid: Uid, body: JobFinish, caller: JobWriter, brain: BrainDep) -> Job:
    """Say how the job ended. Saying the same again changes nothing."""
    return present(await brain.jobs.finish(uid, JobPhase(body.state), body.message))
