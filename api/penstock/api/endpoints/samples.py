"""Samples: in, and out again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from penstock.api import paging
from penstock.api.paging import Continue, Limit
from penstock.api.present.samples import event, reading, rollup_view, sample_view
from penstock.api.state import BrainDep, JobReader, JobWriter, problems
from penstock.wire.base import ListResource, Seconds, Uid
from penstock.wire.samples import Resolution, SampleBatch, SampleReceipt, SampleView

router = APIRouter(prefix="/v1/jobs/{uid}/samples", tags=["samples"])


@router.post("", responses=problems(404, 409, 413))
async def send_samples(
    uid: Uid, body: SampleBatch, caller: JobWriter, brain: BrainDep
) -> SampleReceipt:
    """Take in a batch. A sample whose time is known already is left as it is."""
    receipt = await brain.samples.add(
        uid,
        [reading(sample) for sample in body.samples],
        [event(each) for each in body.events],
        dropped=body.dropped,
        sent_seconds=body.sent,
    )
    return SampleReceipt(
        accepted=receipt.accepted,
        repeated=receipt.repeated,
        current_plan=receipt.current_plan,
        warning=receipt.warning,
    )


@router.get("", responses=problems(404))
async def read_samples(
    uid: Uid,
    caller: JobReader,
    brain: BrainDep,
    resolution: Annotated[Resolution, Query(description="How fine.")] = Resolution.RAW,
    start: Annotated[Seconds | None, Query(description="At or after.")] = None,
    end: Annotated[Seconds | None, Query(description="Before.")] = None,
    ranks: Annotated[bool, Query(description="Single pods, too: raw samples only.")] = False,
    limit: Limit = 240,
    continue_: Continue = None,
) -> ListResource[SampleView]:
    """Samples of a time range, oldest first; raw ones for two hours, averages for longer."""
    position = paging.decode(continue_, float)
    if resolution is not Resolution.RAW:
        sums = await brain.samples.rollups(
            uid,
            60 if resolution is Resolution.MINUTE else 600,
            start=start,
            end=end,
            after=None if position is None else position[0],
            limit=limit + 1,
        )
        return paging.page(sums, limit, rollup_view, lambda row: [row.start_seconds])
    rows = await brain.samples.page(
        uid,
        start=start,
        end=end,
        after=None if position is None else position[0],
        limit=limit + 1,
    )
    return paging.page(
        rows, limit, lambda row: sample_view(row, ranks), lambda row: [row.time_seconds]
    )
