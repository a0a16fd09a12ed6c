"""Jobs, samples and histories for tests, with everything that does not matter filled in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    PastJob,
    RankSample,
    RolePlan,
    RoleSpec,
    RoleUsage,
    Sample,
    Signature,
)
from penstock.brain.sizes import GIB

NOW = 1_000_000.0
DAY = 86_400.0


def job(
    strategy: Strategy = Strategy.ALL_REDUCE,
    *,
    worker: RoleSpec | None = None,
    ps: RoleSpec | None = None,
    signature: Signature | None = None,
    slots: int | None = None,
) -> JobDescription:
    roles = {Role.WORKER: worker or RoleSpec()}
    if ps is not None or strategy is Strategy.PARAMETER_SERVER:
        roles[Role.PS] = ps or RoleSpec()
    return JobDescription(
        uid="0d9c",
        name="job",
        strategy=strategy,
        roles=roles,
        signature=signature or Signature(),
        slots_per_step=slots,
    )


def applied(
    *, stage: Stage, workers: int | None = None, milli_cpu: int | None = None, at: float = NOW - 600
) -> AppliedPlan:
    role = RolePlan(replicas=workers, milli_cpu=milli_cpu)
    return AppliedPlan(
        applied_seconds=at, settled_seconds=at + 20, roles={Role.WORKER: role}, stage=stage
    )


def allreduce_samples(
    runs: Iterable[tuple[int, Sequence[float]]], *, end: float = NOW, interval: float = 15.0
) -> tuple[Sample, ...]:
    """One sample every `interval` seconds up to `end`; a run is (workers, steps per second...)."""
    rows = [(workers, speed) for workers, speeds in runs for speed in speeds]
    start = end - interval * (len(rows) - 1)
    return tuple(
        Sample(
            time_seconds=start + interval * index,
            step=index * 100,
            steps_per_second=speed,
            world_size=workers,
            interval_seconds=interval,
            roles={Role.WORKER: {rank: RankSample(milli_cpu=900.0) for rank in range(workers)}},
        )
        for index, (workers, speed) in enumerate(rows)
    )


def usage(
    replicas: int = 2,
    *,
    each_milli_cpu: float = 1000.0,
    hottest_milli_cpu: float | None = None,
    memory_bytes: int = GIB,
) -> RoleUsage:
    return RoleUsage(
        replicas=replicas,
        milli_cpu=replicas * each_milli_cpu,
        hottest_milli_cpu=each_milli_cpu if hottest_milli_cpu is None else hottest_milli_cpu,
        peak_memory_bytes=memory_bytes,
        total_memory_bytes=replicas * memory_bytes,
    )


def past(
    uid: str,
    signature: Signature,
    *,
    strategy: Strategy = Strategy.ALL_REDUCE,
    worker: RoleUsage | None = None,
    ps: RoleUsage | None = None,
    age: float = DAY,
    succeeded: bool = True,
    out_of_memory: frozenset[Role] = frozenset(),
) -> PastJob:
    roles = {Role.WORKER: worker or usage()}
    if ps is not None:
        roles[Role.PS] = ps
    return PastJob(
        uid=uid,
        signature=signature,
        strategy=strategy,
        finished_seconds=NOW - age,
        succeeded=succeeded,
        roles=roles,
        out_of_memory=out_of_memory,
    )


def history(
    *,
    samples: tuple[Sample, ...] = (),
    plans: tuple[AppliedPlan, ...] = (),
    past_jobs: tuple[PastJob, ...] = (),
) -> History:
    return History(now_seconds=NOW, samples=samples, plans=plans, past_jobs=past_jobs)
