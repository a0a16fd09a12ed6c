"""What jobs, users and namespaces cost, and where what the nodes had went."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from penstock.api.auth import ForbiddenError, Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.state import BrainDep, CallerDep, problems
from penstock.brain.service import costs
from penstock.wire.base import Name, Seconds
from penstock.wire.costs import CostLine, CostReport, CostsBy, NodesLine, NodesPart, NodesReport

router = APIRouter(prefix="/v1/costs", tags=["costs"])


@router.get("", responses=problems())
async def read_costs(
    caller: CallerDep,
    brain: BrainDep,
    by: Annotated[CostsBy, Query(description="What a line is about.")] = CostsBy.JOB,
    namespace: Annotated[Name | None, Query()] = None,
    start: Annotated[Seconds | None, Query(description="At or after; a day before end.")] = None,
    end: Annotated[Seconds | None, Query(description="Before; now.")] = None,
    limit: Annotated[int, Query(ge=1, le=5000, description="Most lines.")] = 1000,
) -> CostReport:
    """What was requested for how long, what of it was idle, and what it costs."""
    if not await caller.may(Permission(Verb.LIST)):
        if namespace is None:
            raise ForbiddenError(
                f"{caller.name} may not list elasticjobs in all namespaces: "
                "name one with ?namespace="
            )
        await require(caller, Permission(Verb.LIST, namespace=namespace))
    bill = await brain.costs.bill(costs.CostsBy(by.value), start, end, namespace)
    return CostReport(
        start=bill.start,
        end=bill.end,
        currency=bill.currency,
        lines=[_line(line) for line in bill.lines[:limit]],
        left_out=max(0, len(bill.lines) - limit),
        total=_line(bill.total),
    )


@router.get("/nodes", responses=problems())
async def read_nodes_costs(
    caller: CallerDep,
    brain: BrainDep,
    start: Annotated[Seconds | None, Query(description="At or after; a day before end.")] = None,
    end: Annotated[Seconds | None, Query(description="Before; now.")] = None,
) -> NodesReport:
    """What the nodes had, and where it went: used, repeated, idle, stranded, free."""
    await require(caller, Permission(Verb.LIST, "clustersnapshots"))
    await require(caller, Permission(Verb.LIST))
    bill = await brain.costs.nodes(start, end)
    return NodesReport(
        start=bill.start,
        end=bill.end,
        covered_seconds=bill.covered_seconds,
        node_seconds=bill.node_seconds,
        currency=bill.currency,
        parts={NodesPart(part.value): _part(line) for part, line in bill.parts.items()},
        total=_part(bill.total),
    )


def _part(line: costs.NodesLine) -> NodesLine:
    return NodesLine(**asdict(line))


def _line(line: costs.CostLine) -> CostLine:
    amount = line.amount
    return CostLine(
        namespace=line.namespace,
        user=line.user,
        job=line.job,
        uid=line.uid,
        **asdict(line.spent),
        cost=None if amount is None else amount.cost,
        idle_cost=None if amount is None else amount.idle,
        repeated_cost=None if amount is None else amount.repeated,
    )
