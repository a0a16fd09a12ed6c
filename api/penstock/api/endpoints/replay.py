"""Past jobs run again with another placement policy. Asking changes nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter

from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.present.replay import answer, recorded_job
from penstock.api.replaying import ReplayTask
from penstock.api.state import BrainDep, CallerDep, State, problems
from penstock.brain.errors import HistoryError
from penstock.brain.model.rollups import MINUTE, TEN_MINUTES, start_of
from penstock.brain.service.recorded import Recorded
from penstock.scheduler.capacity import wire
from penstock.scheduler.capacity.replay import OutOfTimeError
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.placement.registry import POLICY_NAMES
from penstock.wire.replays import ClusterReplay, ClusterReplayRequest
from penstock.wire.workload import Workload as SentWorkload

router = APIRouter(prefix="/v1/cluster", tags=["cluster"])
_RESOURCE: Final = "clustersnapshots"

LEAST_JOBS: Final = 20
"""With fewer the difference of two policies is that of a few chances."""
_MOST_SNAPSHOTS: Final = 4100
"""Of ten minutes each, in the longest time that is looked at."""


@router.post("/replay", responses=problems(404))
async def replay(
    body: ClusterReplayRequest, caller: CallerDep, brain: BrainDep, state: State
) -> ClusterReplay:
    """What past jobs would have waited for, had the scheduler had another placement policy."""
    await require(caller, Permission(Verb.LIST, _RESOURCE))
    await require(caller, Permission(Verb.LIST))
    content = await brain.cluster.workload()
    sent = await asyncio.to_thread(SentWorkload.model_validate_json, content)
    if body.policy not in POLICY_NAMES or body.policy == sent.placement:
        known = ", ".join(name for name in POLICY_NAMES if name != sent.placement)
        rule = f"the scheduler places by {sent.placement!r}; another one is one of {known}"
        raise InvalidRequestError("policy", body.policy, rule)
    if sent.placement not in POLICY_NAMES:
        rule = f"the scheduler places by {sent.placement!r}, which this Brain does not know"
        raise InvalidRequestError("policy", body.policy, rule)
    end = start_of(brain.clock(), MINUTE)
    start = end - 3600.0 * body.hours
    recorded = await brain.recorded.read(start, end)
    jobs = [recorded_job(one, start) for one in recorded.jobs]
    _enough(recorded, sum(one.counted for one in jobs), body.hours)
    seen = await brain.cluster.fragmentation(
        TEN_MINUTES, start=start, end=end, after=None, limit=_MOST_SNAPSHOTS
    )
    workload = wire.read(sent)
    task = ReplayTask(
        nodes=workload.nodes,
        jobs=jobs,
        before=sent.placement,
        after=body.policy,
        span_seconds=end - start,
    )
    try:
        found = await state.replays.run(task)
    except OutOfTimeError as error:
        raise HistoryError(
            f"{len(jobs):,} jobs on {len(workload.nodes):,} nodes are too many to be replayed in "
            "time: ask for fewer hours"
        ) from error
    return answer(
        found,
        recorded,
        policies=(sent.placement, body.policy),
        span=(start, end),
        stranded=[one.stranded_gpus for one in seen],
        left_out=sent.left_out,
    )


def _enough(recorded: Recorded, counted: int, hours: int) -> None:
    if counted >= LEAST_JOBS:
        return
    silent = f" ({recorded.silent} more came and sent no sample)" if recorded.silent else ""
    raise HistoryError(
        f"hours = {hours}: {counted} jobs came in this time and trained{silent}, and fewer than "
        f"{LEAST_JOBS} do not tell policies apart: ask for more hours, or compare the policies on "
        "a recorded trace with `penstock sim fgd`"
    )
