"""What other nodes would do to the jobs that run and wait. Asking changes nothing.

The scheduler pushes which pods are on which nodes; the answer is made by its own placing code and
the Brain's own measurements, when somebody asks.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter

from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.present.what_if import Known, answer, effect
from penstock.api.state import BrainDep, CallerDep, problems
from penstock.base.enums import Strategy
from penstock.brain.assembly import Brain
from penstock.brain.errors import JobNotFoundError
from penstock.brain.planning import Signature
from penstock.scheduler.capacity import wire
from penstock.scheduler.capacity.change import failed, resized
from penstock.scheduler.capacity.outlook import JobOutlook, Outlook, outlook
from penstock.scheduler.capacity.workload import WaitingJob, Workload
from penstock.scheduler.placement.registry import POLICY_NAMES
from penstock.wire.what_if import ClusterWhatIf, ClusterWhatIfRequest, JobEffect
from penstock.wire.workload import Workload as SentWorkload

router = APIRouter(prefix="/v1/cluster", tags=["cluster"])
_RESOURCE: Final = "clustersnapshots"

MOST_LOOKED_UP: Final = 50
"""Jobs of which speed and history are read for one answer."""


@router.put("/workload", status_code=204, responses=problems(413))
async def put_workload(body: SentWorkload, caller: CallerDep, brain: BrainDep) -> None:
    """Store which pods are on which nodes, and which wait."""
    await require(caller, Permission(Verb.UPDATE, _RESOURCE))
    await brain.cluster.put_workload(body.time, body.model_dump_json(exclude_defaults=True))


@router.post("/whatif", responses=problems(404))
async def cluster_what_if(
    body: ClusterWhatIfRequest, caller: CallerDep, brain: BrainDep
) -> ClusterWhatIf:
    """What more or fewer nodes, or a failure of one, would do to the jobs that run and wait."""
    await require(caller, Permission(Verb.LIST, _RESOURCE))
    await require(caller, Permission(Verb.LIST))
    content = await brain.cluster.workload()
    sent, workload, found = await asyncio.to_thread(_asked, content, body)
    changed = [job for job in found.jobs if job.changes][:MOST_LOOKED_UP]
    known = {job.uid: await _known(brain, job, workload.jobs.get(job.uid)) for job in changed}
    return answer(
        found,
        workload,
        known,
        brain.costs.hourly,
        brain.costs.currency,
        time=sent.time,
        now=brain.clock(),
        left_out=sent.left_out,
    )


def _asked(content: str, body: ClusterWhatIfRequest) -> tuple[SentWorkload, Workload, Outlook]:
    """Not on the event loop: the largest cluster takes a second or two."""
    sent = SentWorkload.model_validate_json(content)
    workload = wire.read(sent)
    if body.fail_node is not None:
        change = failed(workload, body.fail_node)
    else:
        shape = None if body.shape is None else wire.read_resources(body.shape)
        change = resized(workload, body.nodes or 0, shape)
    # A policy that this release does not know is of another one: what fits is the same with each.
    policy = sent.placement if sent.placement in POLICY_NAMES else "stranding"
    return sent, workload, outlook(workload, change, policy)


async def _known(brain: Brain, job: JobOutlook, about: WaitingJob | None) -> Known:
    try:
        pace = await brain.paces.pace(job.uid)
    except JobNotFoundError:
        pace = None  # its trainer, which would register it, has not started
    forecast = None
    if pace is None and about is not None and effect(job) is JobEffect.STARTS:
        signature = Signature(
            **{
                name: about.signature[name]
                for name in ("model", "dataset", "user", "code")
                if name in about.signature
            }
        )
        if about.strategy in list(Strategy) and signature != Signature():
            forecast = await brain.forecasts.forecast(
                signature, Strategy(about.strategy), about.namespace
            )
    return Known(pace=pace, forecast=forecast)
