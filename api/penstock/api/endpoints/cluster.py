"""Read models of the cluster: the scheduler puts them, people read them."""

from __future__ import annotations

import json
from typing import Annotated, Final

from fastapi import APIRouter, Query

from penstock.api import paging
from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.paging import Continue, Limit
from penstock.api.state import BrainDep, CallerDep, problems
from penstock.brain.assembly import Brain
from penstock.brain.service.cluster import Fragmentation, Snapshot
from penstock.wire.base import ListResource, Seconds
from penstock.wire.cluster import (
    Allocation,
    ClusterSnapshot,
    FragmentationView,
    Node,
    NodeView,
)
from penstock.wire.samples import Resolution

router = APIRouter(prefix="/v1/cluster", tags=["cluster"])
_RESOURCE: Final = "clustersnapshots"


@router.put("/snapshot", status_code=204, responses=problems(413))
async def put_snapshot(body: ClusterSnapshot, caller: CallerDep, brain: BrainDep) -> None:
    """Store the cluster as it is, and what was decided since the last time."""
    await require(caller, Permission(Verb.UPDATE, _RESOURCE))
    await brain.cluster.put(
        Snapshot(
            time_seconds=body.time,
            stranded_gpus=body.stranded_gpus,
            stranded_cpu_cores=body.stranded_cpu_cores,
            nodes=[node.model_dump(mode="json") for node in body.nodes],
        ),
        [(each.time, each.id, each.model_dump(mode="json")) for each in body.allocations],
    )


@router.get("/nodes", responses=problems())
async def list_nodes(
    caller: CallerDep, brain: BrainDep, limit: Limit = 100, continue_: Continue = None
) -> ListResource[NodeView]:
    """The nodes as they were last seen, by name."""
    await require(caller, Permission(Verb.LIST, _RESOURCE))
    position = paging.decode(continue_, str)
    snapshot = await brain.cluster.newest()
    if snapshot is None:
        return ListResource(items=[])
    nodes = sorted(snapshot.nodes, key=lambda node: str(node["name"]))
    if position is not None:
        nodes = [node for node in nodes if node["name"] > position[0]]
    page = [
        NodeView(time=snapshot.time_seconds, **Node.model_validate(node).model_dump())
        for node in nodes[:limit]
    ]
    return ListResource(
        items=page, continue_=paging.encode(page[-1].name) if len(nodes) > limit else None
    )


@router.get("/fragmentation", responses=problems())
async def read_fragmentation(
    caller: CallerDep,
    brain: BrainDep,
    resolution: Annotated[
        Resolution, Query(description="raw is the newest alone; 1m a day, 10m two weeks.")
    ] = Resolution.MINUTE,
    start: Annotated[Seconds | None, Query(description="At or after.")] = None,
    end: Annotated[Seconds | None, Query(description="Before.")] = None,
    limit: Limit = 100,
    continue_: Continue = None,
) -> ListResource[FragmentationView]:
    """Fragmentation of every node over time, oldest first."""
    await require(caller, Permission(Verb.LIST, _RESOURCE))
    position = paging.decode(continue_, float)
    if resolution is Resolution.RAW:
        newest = await brain.cluster.newest()
        items = [] if newest is None else [_newest(newest)]
        return ListResource(items=items)
    rows = await brain.cluster.fragmentation(
        60 if resolution is Resolution.MINUTE else 600,
        start=start,
        end=end,
        after=None if position is None else position[0],
        limit=limit + 1,
    )
    return paging.page(rows, limit, _averaged, lambda row: [row.time_seconds])


@router.get("/allocations", responses=problems())
async def list_allocations(
    caller: CallerDep,
    brain: BrainDep,
    since: Annotated[Seconds | None, Query(description="At or after.")] = None,
    limit: Limit = 100,
    continue_: Continue = None,
) -> ListResource[Allocation]:
    """What the scheduler has decided, newest first."""
    await require(caller, Permission(Verb.LIST, _RESOURCE))
    return await allocations(brain, limit, continue_, since=since)


async def allocations(
    brain: Brain,
    limit: int,
    continue_: str | None,
    *,
    since: float | None = None,
    job_uid: str | None = None,
) -> ListResource[Allocation]:
    """A page of the scheduler's decisions, newest first; about one job, where it is given."""
    position = paging.decode(continue_, int)
    rows = await brain.cluster.allocations(
        since=since,
        before=None if position is None else position[0],
        limit=limit + 1,
        job_uid=job_uid,
    )
    return paging.page(
        rows,
        limit,
        lambda row: Allocation.model_validate(json.loads(row.content)),
        lambda row: [row.id or 0],
    )


def _averaged(row: Fragmentation) -> FragmentationView:
    return FragmentationView(
        time=row.time_seconds,
        stranded_gpus=row.stranded_gpus,
        stranded_cpu_cores=row.stranded_cpu_cores,
        nodes=dict(row.nodes),
    )


def _newest(snapshot: Snapshot) -> FragmentationView:
    return FragmentationView(
        time=snapshot.time_seconds,
        stranded_gpus=snapshot.stranded_gpus,
        stranded_cpu_cores=snapshot.stranded_cpu_cores,
        nodes={str(node["name"]): float(node["fragmentation"]) for node in snapshot.nodes},
    )
