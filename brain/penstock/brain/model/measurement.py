"""What a job with parameter servers did in each configuration it has been in.

Samples are grouped into runs of one configuration: so many workers of so much CPU, and the CPU of
each server. The first sample of a run is left out, as it may mix two configurations, and so are
samples in which some workers are still starting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from penstock.base.enums import Role
from penstock.brain.model.robust_statistics import robust_sigma
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    RankSample,
    RolePlan,
    Sample,
)
from penstock.brain.sizes import in_force

MOST_SAMPLES: Final = 20
"""Of a longer run in one configuration, the latest samples count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One configuration and its medians. CPU in cores; servers by rank.

    `error_steps_per_second` is the standard error of the speed.
    """

    workers: int
    worker_cores: float
    server_cores: tuple[float, ...]
    steps_per_second: float
    error_steps_per_second: float
    worker_used_cores: float
    server_used_cores: tuple[float, ...]
    worker_memory_bytes: int
    server_memory_bytes: int
    samples: int
    first_seconds: float
    last_seconds: float

    @property
    def cores(self) -> float:
        """What the configuration counts against the quota."""
        return self.workers * self.worker_cores + sum(self.server_cores)

    @property
    def server_shares(self) -> tuple[float, ...]:
        """Share of its CPU that each server uses."""
        pairs = zip(self.server_used_cores, self.server_cores, strict=True)
        return tuple(used / cores for used, cores in pairs)


def all_train(sample: Sample) -> bool:
    """Whether no worker is still starting: one that has not made a step yet, as others have.

    Such a sample shows neither the configuration before nor the one that will be.
    """
    made = [row.step_seconds is not None for row in sample.ranks(Role.WORKER).values()]
    return all(made) or not any(made)


Key = tuple[int, float, tuple[float, ...]]


def measurements(history: History, job: JobDescription) -> tuple[Measurement, ...]:
    """Every run of at least two samples in one configuration, oldest first."""
    found = []
    for key, run in _runs(history, job):
        if len(run) >= 2:
            found.append(_summed_up(key, run[1:][-MOST_SAMPLES:]))
    return tuple(found)


def settled(history: History, job: JobDescription, least: int) -> Measurement | None:
    """The newest measurement, if it is of the configuration that the plans want now and rests on
    `least` samples; None while a plan is being carried out or has just been.
    """
    if not history.plans or history.plans[-1].settled_seconds is None:
        return None
    key, run = _newest_run(history, job)
    if key is None or len(run) <= least:
        return None
    newest = _summed_up(key, run[1:])
    roles = in_force(history)
    worker, server = roles.get(Role.WORKER), roles.get(Role.PS)
    if worker and worker.replicas is not None:
        total = worker.replicas + (worker.spare_replicas or 0)
        if newest.workers != total:
            return None
    if server and server.replicas is not None and len(newest.server_cores) != server.replicas:
        return None
    return newest


def _newest_run(history: History, job: JobDescription) -> tuple[Key | None, list[Sample]]:
    """The configuration of the latest sample, and its latest samples without a break in it."""
    key: Key | None = None
    run: list[Sample] = []
    for sample in reversed(history.samples):
        own = _key(sample, history, job)
        if own is None or (key is not None and own != key):
            break
        key = own
        run.append(sample)
        if len(run) > MOST_SAMPLES:
            break
    return key, run[::-1]


def _runs(history: History, job: JobDescription) -> Iterator[tuple[Key, list[Sample]]]:
    key: Key | None = None
    run: list[Sample] = []
    for sample in history.samples:
        own = _key(sample, history, job)
        if own is None:
            continue
        if own != key:
            if key is not None:
                yield key, run
            key, run = own, []
        run.append(sample)
    if key is not None:
        yield key, run


def _key(sample: Sample, history: History, job: JobDescription) -> Key | None:
    workers, servers = sample.ranks(Role.WORKER), sample.ranks(Role.PS)
    if not workers or not servers or sample.steps_per_second <= 0 or not all_train(sample):
        return None
    of_workers = _sizes(Role.WORKER, workers, sample, history, job)
    of_servers = _sizes(Role.PS, servers, sample, history, job)
    if of_workers is None or of_servers is None:
        return None
    return len(workers), median(of_workers) / 1000, tuple(size / 1000 for size in of_servers)


def _sizes(
    role: Role,
    ranks: Mapping[int, RankSample],
    sample: Sample,
    history: History,
    job: JobDescription,
) -> list[int] | None:
    """Milli-cores by rank, as reported or else as planned; None where neither is known."""
    own = [ranks[rank].milli_cpu_limit for rank in sorted(ranks)]
    if None not in own:
        return [size or 0 for size in own]
    planned = _planned(role, sample.time_seconds, history, job)
    if planned is None or planned.milli_cpu is None:
        return None
    return [
        (planned.ranks[rank].milli_cpu if rank in planned.ranks else None) or planned.milli_cpu
        for rank in sorted(ranks)
    ]


def _planned(role: Role, at: float, history: History, job: JobDescription) -> RolePlan | None:
    before: tuple[AppliedPlan, ...] = tuple(
        plan
        for plan in history.plans
        if plan.settled_seconds is not None and plan.settled_seconds <= at
    )
    planned = in_force(History(now_seconds=at, plans=before)).get(role)
    if planned is not None and planned.milli_cpu is not None:
        return planned
    requested = job.role(role).milli_cpu
    return None if requested is None else RolePlan(milli_cpu=requested)


def _summed_up(key: Key, run: list[Sample]) -> Measurement:
    count, cores, server_cores = key
    speeds = [sample.steps_per_second for sample in run]
    centre = median(speeds)
    ranks = range(len(server_cores))
    servers = [
        [sample.ranks(Role.PS)[rank] for rank in sorted(sample.ranks(Role.PS))] for sample in run
    ]
    workers = [rank for sample in run for rank in sample.ranks(Role.WORKER).values()]
    return Measurement(
        workers=count,
        worker_cores=cores,
        server_cores=server_cores,
        steps_per_second=centre,
        error_steps_per_second=1.25 * max(robust_sigma(speeds), 0.01 * centre) / len(run) ** 0.5,
        # The mean over ranks of a sample, the median over samples.
        worker_used_cores=median(
            sum(rank.milli_cpu for rank in sample.ranks(Role.WORKER).values()) / count / 1000
            for sample in run
        ),
        server_used_cores=tuple(
            median(row[rank].milli_cpu / 1000 for row in servers) for rank in ranks
        ),
        worker_memory_bytes=max(rank.memory_bytes for rank in workers),
        server_memory_bytes=max(rank.memory_bytes for row in servers for rank in row),
        samples=len(run),
        first_seconds=run[0].time_seconds,
        last_seconds=run[-1].time_seconds,
    )
