"""Plans: what was planned, overrides, proposals, and the stream of what is new."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Response
from starlette.responses import StreamingResponse

from penstock.api import paging, streams
from penstock.api.etags import EtagError, etag, required_revision, unchanged
from penstock.api.paging import Continue, Limit
from penstock.api.present import plans as present
from penstock.api.state import BrainDep, JobReader, ScaleCreator, ScaleDeleter, State, problems
from penstock.brain.planning import Limits
from penstock.brain.service.plans import OverrideRequest
from penstock.wire.base import ListResource, Uid, byte_count, milli_cpu
from penstock.wire.plans import (
    AlgorithmRun,
    Override,
    Plan,
    Proposal,
    ProposalLimits,
    ProposalRequest,
)

router = APIRouter(prefix="/v1/jobs/{uid}", tags=["plans"])

Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of the plan within its job.")]
_ETAG: Final = {"ETag": {"description": "Tag of the job's plans.", "schema": {"type": "string"}}}


@router.get("/plans", responses=problems(404))
async def list_plans(
    uid: Uid, caller: JobReader, brain: BrainDep, limit: Limit = 100, continue_: Continue = None
) -> ListResource[Plan]:
    """Every plan of the job, oldest first, held ones included."""
    position = paging.decode(continue_, int)
    rows = await brain.plans.page(
        uid, after=0 if position is None else position[0], limit=limit + 1
    )
    return paging.page(rows, limit, present.plan, lambda row: [row.number])


@router.get(
    "/plans/current",
    response_model=Plan,
    responses={
        **problems(404),
        200: {"headers": _ETAG},
        304: {"description": "The plan is the one that the caller has."},
    },
)
async def read_current_plan(
    uid: Uid,
    caller: JobReader,
    brain: BrainDep,
    response: Response,
    if_none_match: Annotated[
        str | None, Header(max_length=400, description="Answer 304 while this tag is the newest.")
    ] = None,
) -> Plan | Response:
    """The plan in force."""
    current = await brain.plans.current(uid)
    if unchanged(if_none_match, current.revision):
        return Response(status_code=304, headers={"ETag": etag(current.revision)})
    response.headers["ETag"] = etag(current.revision)
    return present.plan(current.row)


@router.get(
    "/plans/watch",
    response_class=StreamingResponse,
    responses={
        **problems(404),
        200: {
            "description": "Server-sent events named `plan`; the id is the plan's.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def watch_plans(
    uid: Uid,
    caller: JobReader,
    brain: BrainDep,
    state: State,
    last_event_id: Annotated[
        str | None, Header(max_length=20, description="Id of the last plan that was seen.")
    ] = None,
) -> StreamingResponse:
    """Plans as they come into force, beginning after `Last-Event-ID`.

    The stream ends when the job has ended, the service stops, or after five minutes: with the last
    id it goes on without a gap. A plan is sent once to each stream, none is left out, also across
    restarts of the service. A caller has at most eight streams of a job.
    """
    text = (last_event_id or "0").strip()
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise EtagError(f"Last-Event-ID = {text!r}: must be the id of a plan")
    await brain.jobs.get(uid)

    async def events() -> AsyncIterator[bytes]:
        ends = time.monotonic() + streams.STREAM_SECONDS
        yield b": welcome\n\n"
        async with aclosing(brain.plans.watch(uid, int(text))) as rows:
            async for row in rows:
                if row is None:
                    yield b": still here\n\n"
                else:
                    data = json.dumps(present.plan(row).model_dump(mode="json"))
                    yield f"event: plan\nid: {row.number}\ndata: {data}\n\n".encode()
                if time.monotonic() > ends:
                    return

    answer = streams.CountedStream(
        events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )
    answer.count(state.streams, caller.name, uid)
    return answer


@router.post("/plans/propose", responses=problems(404, 413))
async def propose_plan(
    uid: Uid, body: ProposalRequest, caller: JobReader, brain: BrainDep
) -> Proposal:
    """What the Brain would do now, or with these limits, or with that algorithm."""
    decision, content = await brain.plans.propose(
        uid, algorithm=body.algorithm, stage=body.stage, limits=_limited(body.limits)
    )
    now = brain.clock()
    plan = None
    if decision.plan is not None and content is not None:
        number = (await brain.plans.count(uid)) + 1
        plan = present.proposed(number, uid, now, decision.plan, decision.version, content)
    return Proposal(plan=plan, runs=[present.proposed_run(run, now) for run in decision.runs])


@router.get("/plans/{number}", responses=problems(404))
async def read_plan(uid: Uid, number: Number, caller: JobReader, brain: BrainDep) -> Plan:
    """One plan, with what came of it and what algorithms in shadow mode would have done."""
    detail = await brain.plans.detail(uid, number)
    return present.plan(detail.row, detail.outcome, detail.shadows)


@router.post(
    "/plans",
    status_code=201,
    response_model=Plan,
    responses={**problems(404, 409, 412, 413), 201: {"headers": _ETAG}},
)
async def override_plan(
    uid: Uid,
    body: Override,
    caller: ScaleCreator,
    brain: BrainDep,
    response: Response,
    if_match: Annotated[
        str | None, Header(max_length=400, description="Only while this tag is the newest.")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=128,
            pattern=r"^[\x21-\x7e]+$",
            description="The same key again changes nothing and answers the same.",
        ),
    ] = None,
) -> Plan:
    """Put a person's targets in force: Apply until the Brain says otherwise, Pin until deleted."""
    current = await brain.plans.override(
        uid,
        OverrideRequest(
            policy=body.policy,
            roles=body.roles,
            reason=body.reason,
            message=body.message,
            author=caller.name,
            revision=required_revision(if_match),
            idempotency_key=idempotency_key,
        ),
    )
    response.headers["ETag"] = etag(current.revision)
    return present.plan(current.row)


@router.delete(
    "/override",
    response_model=Plan,
    responses={
        **problems(404, 409),
        204: {"description": "Lifted; the Brain has never planned the job."},
    },
)
async def lift_override(
    uid: Uid, caller: ScaleDeleter, brain: BrainDep, response: Response
) -> Plan | Response:
    """Return the job to the Brain: what it said last is in force again."""
    current = await brain.plans.lift(uid, caller.name)
    if current is None:
        return Response(status_code=204)
    response.headers["ETag"] = etag(current.revision)
    return present.plan(current.row)


@router.get("/runs", responses=problems(404))
async def list_runs(
    uid: Uid, caller: JobReader, brain: BrainDep, limit: Limit = 100, continue_: Continue = None
) -> ListResource[AlgorithmRun]:
    """Algorithms that were asked and had a plan, or failed; newest first."""
    position = paging.decode(continue_, int)
    rows = await brain.plans.runs(
        uid, before=None if position is None else position[0], limit=limit + 1
    )
    return paging.page(rows, limit, present.stored_run, lambda row: [row.id or 0])


def _limited(asked: ProposalLimits) -> Callable[[Limits], Limits]:
    given = {
        "milli_cpu": milli_cpu(asked.cpu),
        "memory_bytes": byte_count(asked.memory),
        "pod_milli_cpu": milli_cpu(asked.pod_cpu),
        "pod_memory_bytes": byte_count(asked.pod_memory),
    }
    said = {name: value for name, value in given.items() if value is not None}
    return lambda own: replace(own, **said)
