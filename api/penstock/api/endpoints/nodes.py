"""What is known of nodes: checks of jobs say it, people overrule it."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path

from penstock.api import paging
from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.paging import Continue, Limit
from penstock.api.state import BrainDep, CallerDep, JobWriter, problems
from penstock.brain.service.nodes import Measured, standing
from penstock.brain.store.tables import NodeRow
from penstock.wire.base import NO_NUL, ListResource, Uid
from penstock.wire.nodes import (
    AvoidedNodes,
    NodeOverrideBody,
    NodeRecord,
    NodeReport,
    NodeVerdict,
)

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])
of_jobs = APIRouter(prefix="/v1/jobs/{uid}/nodes", tags=["nodes"])
_RESOURCE: Final = "clustersnapshots"

NodeName = Annotated[
    str, Path(min_length=1, max_length=253, pattern=NO_NUL, description="Name of the node.")
]


@of_jobs.post("", responses=problems(404, 409, 413))
async def report_nodes(
    uid: Uid, body: NodeReport, caller: JobWriter, brain: BrainDep
) -> AvoidedNodes:
    """Take in what a job's check found of its nodes (it may be nothing); which are avoided then."""
    found = [
        Measured(
            node=one.node,
            verdict=one.verdict.value,
            what=one.what,
            ratio=one.ratio,
            hardware=one.hardware,
            compute=one.compute,
            memory=one.memory,
            link=one.link,
        )
        for one in body.nodes
    ]
    await brain.nodes.report(uid, found)
    return AvoidedNodes(nodes=await brain.nodes.avoided())


@router.get("", responses=problems())
async def list_node_records(
    caller: CallerDep, brain: BrainDep, limit: Limit = 100, continue_: Continue = None
) -> ListResource[NodeRecord]:
    """What is known of nodes, by name."""
    await require(caller, Permission(Verb.LIST, _RESOURCE))
    position = paging.decode(continue_, str)
    rows = await brain.nodes.page(None if position is None else position[0], limit + 1)
    avoided = frozenset(await brain.nodes.avoided())
    now = brain.clock()
    return paging.page(rows, limit, lambda row: _record(row, avoided, now), lambda row: [row.name])


@router.put("/{node}/override", responses=problems())
async def override_node(
    node: NodeName, body: NodeOverrideBody, caller: CallerDep, brain: BrainDep
) -> NodeRecord:
    """Have a node avoided, or used whatever checks find, for some time."""
    await require(caller, Permission(Verb.UPDATE, _RESOURCE))
    row = await brain.nodes.override(
        node, avoid=body.avoid, seconds=body.seconds, why=body.why, author=caller.name
    )
    return _record(row, frozenset(await brain.nodes.avoided()), brain.clock())


@router.delete("/{node}/override", responses=problems(404))
async def lift_node_override(node: NodeName, caller: CallerDep, brain: BrainDep) -> NodeRecord:
    """Let checks decide about a node again."""
    await require(caller, Permission(Verb.UPDATE, _RESOURCE))
    row = await brain.nodes.lift(node, caller.name)
    return _record(row, frozenset(await brain.nodes.avoided()), brain.clock())


def _record(row: NodeRow, avoided: frozenset[str], now: float) -> NodeRecord:
    said = standing(row).word(now)
    return NodeRecord(
        node=row.name,
        avoided=row.name in avoided,
        until=standing(row).until(now),
        verdict=NodeVerdict(row.verdict) if row.verdict else None,
        what=row.what,
        ratio=row.ratio,
        times=row.times,
        hardware=row.hardware,
        compute=row.compute,
        memory=row.memory,
        link=row.link,
        measured=row.measured_seconds,
        job_uid=row.job_uid,
        overridden_by=row.override_by if said else "",
        why=row.override_why if said else "",
    )
