"""Jobs with parameter servers, as their samples show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.base.enums import EventKind, Role, Stage, Strategy
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    JobEvent,
    RankSample,
    RolePlan,
    RoleSpec,
    Sample,
)
from penstock.brain.sizes import GIB
from tests.brain.jobs import NOW, job

SETTLED = NOW - 120


def ps_job(
    *, most_workers: int = 100, spare: int = 0, ps: RoleSpec | None = None
) -> JobDescription:
    worker = RoleSpec(maximum=most_workers, spare=spare)
    return job(Strategy.PARAMETER_SERVER, worker=worker, ps=ps)


def ps_sample(
    at: float,
    *,
    speed: float,
    workers: int,
    worker_cores: float,
    worker_used: float,
    servers: Sequence[tuple[float, float]],
    worker_seconds: Mapping[int, float] | None = None,
    server_seconds: Mapping[int, float] | None = None,
    server_memory: Mapping[int, tuple[int, int]] | None = None,
    wait_share: float | None = None,
) -> Sample:
    """`servers` holds (cores granted, cores used) of each; seconds are of a step or an update."""
    memory = server_memory or {}
    return Sample(
        time_seconds=at,
        step=1,
        steps_per_second=speed,
        world_size=workers,
        roles={
            Role.WORKER: {
                rank: RankSample(
                    milli_cpu=worker_used * 1000,
                    milli_cpu_limit=round(worker_cores * 1000),
                    memory_bytes=2 * GIB,
                    step_seconds=(worker_seconds or {}).get(rank, workers / speed),
                    wait_share=wait_share,
                    node=f"w{rank}",
                )
                for rank in range(workers)
            },
            Role.PS: {
                rank: RankSample(
                    milli_cpu=used * 1000,
                    milli_cpu_limit=round(cores * 1000),
                    memory_bytes=memory.get(rank, (GIB, 8 * GIB))[0],
                    memory_limit_bytes=memory.get(rank, (GIB, 8 * GIB))[1],
                    step_seconds=(server_seconds or {}).get(rank, 0.01),
                    node=f"s{rank}",
                )
                for rank, (cores, used) in enumerate(servers)
            },
        },
    )


def run_of(count: int = 5, *, end: float = NOW, **fields: object) -> tuple[Sample, ...]:
    """`count` samples of one configuration, 15 s apart, the last at `end`."""
    return tuple(
        # Each test names its own fields.
        ps_sample(end - 15 * (count - 1 - index), **fields)  # type: ignore[arg-type]
        for index in range(count)
    )


def in_force_plan(
    workers: int,
    worker_cores: float,
    servers: int,
    server_cores: float,
    *,
    stage: Stage = Stage.CREATE,
    at: float = SETTLED - 120,
    settled: float = SETTLED,
) -> AppliedPlan:
    return AppliedPlan(
        applied_seconds=at,
        settled_seconds=settled,
        stage=stage,
        roles={
            Role.WORKER: RolePlan(replicas=workers, milli_cpu=round(worker_cores * 1000)),
            Role.PS: RolePlan(replicas=servers, milli_cpu=round(server_cores * 1000)),
        },
    )


def ps_history(
    samples: tuple[Sample, ...],
    *plans: AppliedPlan,
    events: tuple[JobEvent, ...] = (),
    now: float = NOW,
) -> History:
    return History(now_seconds=now, samples=samples, plans=plans, events=events)


def out_of_memory(role: Role, rank: int, limit: int | None, at: float = NOW - 30) -> JobEvent:
    return JobEvent(
        time_seconds=at,
        kind=EventKind.OUT_OF_MEMORY,
        role=role,
        rank=rank,
        memory_limit_bytes=limit,
    )


def waiting(share: float | None) -> tuple[Sample, ...]:
    """Four workers that use 2 cores each, and wait for input for a share of their time."""
    return run_of(
        5,
        speed=10.0,
        workers=4,
        worker_cores=3.0,
        worker_used=2.0,
        servers=[(8.0, 2.0)],
        wait_share=share,
    )
