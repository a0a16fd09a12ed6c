"""What was measured of jobs' input: kept, looked up, and asked what would change it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from penstock.api import paging
from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.endpoints.cluster import allocations
from penstock.api.paging import Continue, Limit
from penstock.api.present.profiles import input_view, profile_line, profile_view, what_if_view
from penstock.api.state import BrainDep, CallerDep, JobReader, JobWriter, problems
from penstock.throughput.profiles.profile import from_json
from penstock.wire.base import NO_NUL, ListResource, Uid
from penstock.wire.cluster import Allocation
from penstock.wire.profiles import (
    InputView,
    ProfileBody,
    ProfileView,
    WhatIf,
    WhatIfRequest,
)

router = APIRouter(prefix="/v1/jobs/{uid}", tags=["input"])
store = APIRouter(prefix="/v1/profiles", tags=["input"])

Key = Annotated[
    str | None, Query(max_length=128, pattern=NO_NUL, description="Those that have this key.")
]


@router.put("/profile", status_code=204, responses=problems(404, 409, 413))
async def put_profile(uid: Uid, body: ProfileBody, caller: JobWriter, brain: BrainDep) -> None:
    """Store what was measured just now, in place of what this source measured before."""
    await brain.profiles.put(uid, body.source.value, from_json(body.content))


@router.get("/profile", responses=problems(404))
async def read_profile(uid: Uid, caller: JobReader, brain: BrainDep) -> ProfileView:
    """What was measured last."""
    return profile_view(await brain.profiles.get(uid))


@router.post("/whatif", responses=problems(404))
async def ask_what_if(uid: Uid, body: WhatIfRequest, caller: JobReader, brain: BrainDep) -> WhatIf:
    """What one training process would do with other resources. Nothing is changed by asking."""
    changes = [one.model_dump(exclude_none=True) for one in body.configurations]
    profile, points = await brain.profiles.what_if(uid, changes)
    return what_if_view(profile, list(body.configurations), points)


@router.get("/input", responses=problems(404))
async def read_input(uid: Uid, caller: JobReader, brain: BrainDep) -> InputView:
    """Where the time of the job's input goes, and which data workers it should have."""
    return input_view(await brain.profiles.state(uid))


@router.get("/allocations", responses=problems(404))
async def list_job_allocations(
    uid: Uid,
    caller: JobReader,
    brain: BrainDep,
    limit: Limit = 100,
    continue_: Continue = None,
) -> ListResource[Allocation]:
    """What the scheduler has decided about the job, newest first."""
    return await allocations(brain, limit, continue_, job_uid=uid)


@store.get("", responses=problems())
async def list_profiles(
    caller: CallerDep,
    brain: BrainDep,
    pipeline: Key = None,
    model: Key = None,
    machine: Key = None,
    limit: Limit = 100,
    continue_: Continue = None,
) -> ListResource[ProfileView]:
    """Profiles with these keys, newest first; also of jobs that are gone."""
    await require(caller, Permission(Verb.LIST))
    position = paging.decode(continue_, int)
    rows = await brain.profiles.page(
        {"pipeline": pipeline, "model": model, "machine": machine},
        None if position is None else position[0],
        limit + 1,
    )
    return paging.page(rows, limit, profile_line, lambda row: [row.id or 0])
