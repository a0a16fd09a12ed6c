"""Taking in what jobs measured, and giving it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.base.enums import EventKind, Role
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.history import SampleRecord
from penstock.brain.model import gpu_use, share_figures, stage_figures
from penstock.brain.model.share_figures import ShareFigures
from penstock.brain.model.stage_figures import StageFigures
from penstock.brain.planning import JobEvent
from penstock.brain.rank_columns import RankColumns, pack
from penstock.brain.service.gpu_gauges import GpuGauges
from penstock.brain.service.sample_writer import Batch, SampleWriter
from penstock.brain.service.share_gauges import ShareGauges
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import JobProgress, Jobs
from penstock.brain.store.rollups import Rollups
from penstock.brain.store.samples import Samples
from penstock.brain.store.tables import JobRow, RollupRow, SampleRow
from penstock.brain.symptoms import SymptomSettings, detect

TOLERATED_SKEW_SECONDS: Final = 60.0
"""Clocks that differ by less are taken to agree: a retried batch is that old, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One sample as its trainer sent it; `time_seconds` by the trainer's clock."""

    time_seconds: float
    interval_seconds: float
    step: int
    epoch: int
    steps_per_second: float
    samples_per_second: float
    world_size: int
    enqueued_per_second: float | None = None
    dequeued_per_second: float | None = None
    ideal_per_second: float | None = None
    received_bytes_per_second: float | None = None
    roles: Mapping[Role, RankColumns] = field(default_factory=dict)
    share: ShareFigures | None = None
    stages: tuple[StageFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a batch."""

    accepted: int
    repeated: int
    current_plan: int | None
    warning: str = ""


class SampleService:
    """The samples of one Brain."""

    def __init__(
        self,
        database: Database,
        symptoms: SymptomSettings,
        clock: Callable[[], float],
        metrics: BrainMetrics,
    ) -> None:
        self._metrics = metrics
        self._database = database
        self._writer = SampleWriter(database)
        self._symptoms = symptoms
        self._clock = clock
        self._gpus = GpuGauges(database, metrics)
        self._shares = ShareGauges(database, metrics)

    async def observe(self) -> None:
        """Bring the gauges of the jobs' GPUs and share groups up to date."""
        await self._gpus.show(self._clock())
        await self._shares.show(self._clock())

    async def close(self) -> None:
        """Wait until everything that came in is written."""
        await self._writer.close()

    def configure(self, symptoms: SymptomSettings) -> None:
        """Take over other symptoms."""
        self._symptoms = symptoms

    async def add(
        self,
        uid: str,
        readings: Sequence[Reading],
        events: Sequence[JobEvent] = (),
        *,
        dropped: int = 0,
        sent_seconds: float | None = None,
    ) -> Receipt:
        """Store a batch; samples and events that are there already are left as they are.

        `sent_seconds`: the sender's clock as it sent the batch.

        Raises:
            JobNotFoundError: No job has this uid.
            JobFinishedError: The job has ended and takes nothing more.
            OverloadedError: More batches wait than can be written soon.
        """
        now = self._clock()
        offset = _offset(now, sent_seconds, readings)
        rows = [_row(uid, reading, offset, now) for reading in readings]
        newest = max(readings, key=lambda each: each.time_seconds, default=None)
        symptoms = (
            ()
            if newest is None
            else detect(
                newest.roles,
                newest.enqueued_per_second,
                newest.dequeued_per_second,
                self._symptoms,
                ideal_per_second=newest.ideal_per_second,
            )
        )
        progress = JobProgress(
            uid=uid,
            now=now,
            dropped=dropped,
            out_of_memory=any(event.kind is EventKind.OUT_OF_MEMORY for event in events),
        )
        if newest is not None:
            progress = replace(
                progress,
                at=newest.time_seconds + offset,
                step=newest.step,
                steps_per_second=newest.steps_per_second,
                world_size=newest.world_size,
                symptoms=",".join(symptom.value for symptom in symptoms),
            )
        written = await self._writer.write(
            Batch(uid, rows, [_event_row(uid, event, offset) for event in events], progress)
        )
        if newest is not None:
            self._gpus.note(uid, gpu_use.of_roles(newest.roles), now)
            self._shares.note(uid, newest.share, now)
        accepted = written.accepted
        self._metrics.samples.labels("accepted").inc(accepted)
        self._metrics.samples.labels("repeated").inc(len(rows) - accepted)
        self._metrics.samples_dropped.inc(dropped)
        return Receipt(accepted, len(rows) - accepted, written.current_plan, written.warning)

    async def rollups(
        self,
        uid: str,
        resolution: int,
        *,
        start: float | None,
        end: float | None,
        after: float | None,
        limit: int,
    ) -> Sequence[RollupRow]:
        """Roll-ups of a time range by the server's clock, oldest first.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        async with self._database.read() as session:
            await Jobs(self._database, session).get(uid)
            return await Rollups(self._database, session).page(
                uid, resolution, start=start, end=end, after=after, limit=limit
            )

    async def newest(self, uid: str, limit: int) -> Sequence[SampleRecord]:
        """The newest samples, oldest first, by the server's clock."""
        async with self._database.read() as session:
            return await Samples(self._database, session).records(uid, 0.0, limit)

    async def share_group(self, job: JobRow) -> tuple[ShareFigures, list[str]] | None:
        """What a job said last of its share group, and the names of all members.

        None where it shares with none, or has not said anything lately.
        """
        since = self._clock() - share_figures.HEARD_SECONDS
        async with self._database.read() as session:
            said = await Samples(self._database, session).sharing(job.namespace, since)
        newest: dict[str, tuple[str, ShareFigures]] = {}
        for one in said:
            if one.uid not in newest and (figures := share_figures.load(one.share)) is not None:
                newest[one.uid] = (one.name, figures)
        if job.uid not in newest:
            return None
        own = newest[job.uid][1]
        names = (name for name, figures in newest.values() if figures.group == own.group)
        return own, sorted(names)

    async def page(
        self, uid: str, *, start: float | None, end: float | None, after: float | None, limit: int
    ) -> Sequence[SampleRow]:
        """Samples of a time range by the trainer's clock, oldest first.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        async with self._database.read() as session:
            await Jobs(self._database, session).get(uid)
            return await Samples(self._database, session).page(
                uid, start=start, end=end, after=after, limit=limit
            )


def _offset(now: float, sent: float | None, readings: Sequence[Reading]) -> float:
    """What to add to the trainer's times to have the server's."""
    newest = max((reading.time_seconds for reading in readings), default=now)
    # Without the sender's clock only a sample from the future shows that the clocks differ: one
    # from the past may simply have waited.
    offset = now - sent if sent is not None else min(0.0, now - newest)
    return offset if abs(offset) > TOLERATED_SKEW_SECONDS else 0.0


def _row(uid: str, reading: Reading, offset: float, now: float) -> dict[str, Any]:
    return {
        "job_uid": uid,
        "time_seconds": reading.time_seconds,
        "at_seconds": reading.time_seconds + offset,
        "received_seconds": now,
        "interval_seconds": reading.interval_seconds,
        "step": reading.step,
        "epoch": reading.epoch,
        "steps_per_second": reading.steps_per_second,
        "samples_per_second": reading.samples_per_second,
        "world_size": reading.world_size,
        "servers": len(reading.roles.get(Role.PS, {}).get("rank", ())),
        "enqueued_per_second": reading.enqueued_per_second,
        "dequeued_per_second": reading.dequeued_per_second,
        "ideal_per_second": reading.ideal_per_second,
        "received_bytes_per_second": reading.received_bytes_per_second,
        "ranks": pack(reading.roles),
        "share": reading.share.dump() if reading.share is not None else None,
        "stages": stage_figures.dump(reading.stages) if reading.stages else None,
    }


def _event_row(uid: str, event: JobEvent, offset: float) -> dict[str, Any]:
    return {
        "job_uid": uid,
        "time_seconds": event.time_seconds,
        "kind": event.kind.value,
        "role": event.role.value,
        "rank": event.rank,
        "at_seconds": event.time_seconds + offset,
        "memory_limit_bytes": event.memory_limit_bytes,
        "node": event.node,
    }
