"""Samples, from the wire and to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from penstock.base.enums import Role
from penstock.brain import planning
from penstock.brain.model import gpu_use, share_figures, stage_figures
from penstock.brain.model.gpu_use import GpuUse
from penstock.brain.model.rollups import load_roles
from penstock.brain.model.share_figures import ShareFigures
from penstock.brain.model.stage_figures import StageFigures
from penstock.brain.rank_columns import RankColumns, unpack
from penstock.brain.service.samples import Reading
from penstock.brain.store.tables import RollupRow, SampleRow
from penstock.wire.samples import (
    GPU_FIELDS,
    JobEvent,
    QueueSample,
    RankSample,
    RoleUse,
    Sample,
    SampleView,
    ShareSample,
    StageSample,
)

_OPTIONAL: Final[tuple[tuple[str, str, float], ...]] = (
    # name on the wire, column, factor
    ("cpu_limit_cores", "milli_cpu_limit", 1000),
    ("memory_limit_bytes", "memory_limit_bytes", 1),
    ("steps_per_second", "steps_per_second", 1),
    ("step_seconds", "step_seconds", 1),
    ("wait_share", "wait_share", 1),
    *((name, name, 1) for name in GPU_FIELDS),
)


def reading(sample: Sample) -> Reading:
    """A sample as the Brain takes it in."""
    queue = sample.queue
    return Reading(
        time_seconds=sample.time,
        interval_seconds=sample.interval_seconds,
        step=sample.step,
        epoch=sample.epoch,
        steps_per_second=sample.steps_per_second,
        samples_per_second=sample.samples_per_second,
        world_size=sample.world_size,
        enqueued_per_second=queue.enqueued_per_second if queue else None,
        dequeued_per_second=queue.dequeued_per_second if queue else None,
        ideal_per_second=queue.ideal_per_second if queue else None,
        received_bytes_per_second=queue.received_bytes_per_second if queue else None,
        roles={role: _columns(ranks) for role, ranks in sample.roles.items()},
        share=_figures(sample.share) if sample.share is not None else None,
        stages=tuple(
            StageFigures(made_per_second=one.made_per_second, busy_share=one.busy_share)
            for one in (queue.stages if queue else None) or ()
        ),
    )


def event(wire: JobEvent) -> planning.JobEvent:
    """An event as the Brain takes it in."""
    return planning.JobEvent(
        time_seconds=wire.time,
        kind=wire.kind,
        role=wire.role,
        rank=wire.rank,
        memory_limit_bytes=wire.memory_limit_bytes,
        node=wire.node,
    )


def sample_view(row: SampleRow, with_ranks: bool) -> SampleView:
    """A stored sample on the wire."""
    roles = unpack(row.ranks)
    return SampleView(
        time=row.time_seconds,
        received_seconds=row.received_seconds,
        step=row.step,
        epoch=row.epoch,
        steps_per_second=row.steps_per_second,
        samples_per_second=row.samples_per_second,
        world_size=row.world_size,
        roles=_uses(roles),
        queue=_queue(row),
        share=_share(row),
        ranks=({role: _ranks(columns) for role, columns in roles.items()} if with_ranks else None),
    )


def role_uses(ranks: bytes) -> dict[Role, RoleUse]:
    """What the pods of each role used in a sample, of which these are the packed ranks."""
    return _uses(unpack(ranks))


def _uses(roles: Mapping[Role, RankColumns]) -> dict[Role, RoleUse]:
    return {role: _use(columns) for role, columns in roles.items() if columns["rank"]}


def _queue(row: SampleRow) -> QueueSample | None:
    if row.enqueued_per_second is None or row.dequeued_per_second is None:
        return None
    return QueueSample(
        enqueued_per_second=row.enqueued_per_second,
        dequeued_per_second=row.dequeued_per_second,
        ideal_per_second=row.ideal_per_second,
        received_bytes_per_second=row.received_bytes_per_second,
        stages=[StageSample(**asdict(one)) for one in stage_figures.load(row.stages)] or None,
    )


def _figures(share: ShareSample) -> ShareFigures:
    said = share.model_dump(exclude={"cpu_cores"})
    return ShareFigures(**said, milli_cpu=share.cpu_cores * 1000)


def _share(row: SampleRow) -> ShareSample | None:
    figures = share_figures.load(row.share)
    if figures is None:
        return None
    said = asdict(figures)
    cores = said.pop("milli_cpu") / 1000
    return ShareSample(**said, cpu_cores=cores)


def _columns(ranks: dict[int, RankSample]) -> RankColumns:
    rows = [ranks[rank] for rank in sorted(ranks)]
    columns: RankColumns = {
        "rank": sorted(ranks),
        "milli_cpu": [round(row.cpu_cores * 1000) for row in rows],
        "memory_bytes": [row.memory_bytes for row in rows],
    }
    for name, column, factor in _OPTIONAL:
        values: list[Any] = [getattr(row, name) for row in rows]
        if any(value is not None for value in values):
            columns[column] = [
                None if value is None else _scaled(value, factor) for value in values
            ]
    if any(row.node for row in rows):
        columns["node"] = [row.node for row in rows]
    if any(row.incarnation for row in rows):
        columns["incarnation"] = [row.incarnation for row in rows]
    return columns


def _scaled(value: float, factor: float) -> float:
    return value if factor == 1 else max(1, round(value * factor))


def _use(columns: RankColumns) -> RoleUse:
    waits = [share for share in columns.get("wait_share", ()) if share is not None]
    return RoleUse(
        replicas=len(columns["rank"]),
        cpu_cores=sum(columns["milli_cpu"]) / 1000,
        hottest_cpu_cores=max(columns["milli_cpu"]) / 1000,
        peak_memory_bytes=max(columns["memory_bytes"]),
        wait_share=sum(waits) / len(waits) if waits else None,
        **_gpus(gpu_use.of_columns(columns)),
    )


def _gpus(use: GpuUse | None) -> dict[str, Any]:
    """The fields of a `RoleUse` that are about GPUs; none where none is measured."""
    if use is None:
        return {}
    return {
        "gpus": max(1, round(use.gpus)),
        "gpu_utilization": None if use.utilization is None else min(1.0, use.utilization),
        "gpu_memory_bytes": _whole(use.memory_bytes),
        "gpu_memory_total_bytes": _whole(use.memory_total_bytes),
        "gpu_power_watts": use.power_watts,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _ranks(columns: RankColumns) -> dict[int, RankSample]:
    found = {}
    for index, rank in enumerate(columns["rank"]):
        row = {name: values[index] for name, values in columns.items()}
        fields: dict[str, Any] = {
            "cpu_cores": row["milli_cpu"] / 1000,
            "memory_bytes": row["memory_bytes"],
            "node": row.get("node") or "",
            "incarnation": row.get("incarnation") or 0,
        }
        for name, column, factor in _OPTIONAL:
            if row.get(column) is not None:
                fields[name] = row[column] / factor if factor != 1 else row[column]
        found[rank] = RankSample(**fields)
    return found


def rollup_view(row: RollupRow) -> SampleView:
    """A stored roll-up on the wire."""
    gpus = gpu_use.load(row.gpus)
    return SampleView(
        time=row.start_seconds,
        received_seconds=row.received_seconds,
        step=row.step,
        epoch=row.epoch,
        steps_per_second=row.steps_per_second,
        samples_per_second=row.samples_per_second,
        world_size=row.world_size,
        roles={
            Role(name): RoleUse(
                replicas=round(use.replicas),
                cpu_cores=use.milli_cpu / 1000,
                hottest_cpu_cores=use.hottest_milli_cpu / 1000,
                peak_memory_bytes=round(use.peak_memory_bytes),
                **_gpus(gpus.get(name)),
            )
            for name, use in load_roles(row.roles).items()
        },
    )
