"""Brains for tests: with a clock that only moves when told, and algorithms that run in line."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from penstock.base.enums import Optimize, Role, Strategy
from penstock.brain.assembly import Brain, running_brain
from penstock.brain.configuration import BrainSettings, ExecutorSettings
from penstock.brain.executor import Outcome, Task, TaskResult, TaskRunner
from penstock.brain.executor.task import decode, encode_failure, encode_plan
from penstock.brain.planning import JobDescription, Plan, RoleSpec, Signature
from penstock.brain.registration import Registration
from penstock.brain.registry import Registry
from penstock.brain.service.plans import ScaleWriter
from penstock.brain.service.samples import Reading
from penstock.brain.store.database import Database

START = 1_800_000_000.0


class Clock:
    """A clock that stands still."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        self.now += seconds
        return self.now


class InlineExecutor:
    """Runs the real algorithms in this process: for tests that are not about processes."""

    size = 1
    busy = 0

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def run(self, task: Task) -> TaskResult:
        self.asked.append(task.entry.algorithm.name)
        began = time.monotonic()
        try:
            plan = task.entry.plan(task.record.history(), task.job, task.limits)
            assert plan is None or isinstance(plan, Plan)
            answer = encode_plan(plan)
        except Exception as error:  # noqa: BLE001 - as the child process does
            answer = encode_failure(f"{type(error).__name__}: {error}")
        return decode(answer, time.monotonic() - began)

    async def configure(self, settings: ExecutorSettings) -> None:
        pass

    async def close(self) -> None:
        pass


@asynccontextmanager
async def open_brain(
    url: str,
    *,
    clock: Clock | None = None,
    settings: BrainSettings | None = None,
    registry: Registry | None = None,
    scales: ScaleWriter | None = None,
    executor: TaskRunner | None = None,
    connections: int = 16,
) -> AsyncIterator[Brain]:
    """A Brain in which nothing happens but on request; algorithms run in it unless told not to."""
    database = Database(url, pool_size=connections)
    try:
        async with running_brain(
            database,
            settings,
            registry=registry,
            scales=scales,
            executor=executor or InlineExecutor(),
            clock=clock or time.time,
            background=False,
        ) as brain:
            yield brain
    finally:
        await database.close()


def registration(
    uid: str = "uid-1",
    *,
    name: str = "job",
    namespace: str = "default",
    strategy: Strategy = Strategy.ALL_REDUCE,
    optimize: Optimize = Optimize.AUTO,
    most: int = 4,
    signature: Signature | None = None,
    limits: Mapping[str, str] | None = None,
) -> Registration:
    roles = {Role.WORKER: RoleSpec(minimum=1, maximum=most, milli_cpu=500, memory_bytes=2**29)}
    if strategy is Strategy.PARAMETER_SERVER:
        roles[Role.PS] = RoleSpec(minimum=1, maximum=16)
    return Registration(
        description=JobDescription(
            uid=uid,
            name=name,
            namespace=namespace,
            strategy=strategy,
            optimize=optimize,
            signature=signature or Signature(),
            roles=roles,
            slots_per_step=most if strategy is Strategy.ALL_REDUCE else None,
        ),
        resource_limits=dict(limits or {}),
    )


def reading(
    at: float,
    *,
    workers: int = 1,
    speed: float | None = None,
    step: int = 0,
    milli_cpu: int = 400,
    interval: float = 15.0,
    servers: int = 0,
) -> Reading:
    roles: dict[Role, dict[str, list[Any]]] = {
        Role.WORKER: {
            "rank": list(range(workers)),
            "milli_cpu": [milli_cpu] * workers,
            "memory_bytes": [100_000_000] * workers,
        }
    }
    if servers:
        roles[Role.PS] = {
            "rank": list(range(servers)),
            "milli_cpu": [milli_cpu] * servers,
            "memory_bytes": [100_000_000] * servers,
        }
    return Reading(
        time_seconds=at,
        interval_seconds=interval,
        step=step,
        epoch=0,
        steps_per_second=10.0 * workers**0.9 if speed is None else speed,
        samples_per_second=0.0,
        world_size=workers,
        roles=roles,
    )


__all__ = ["Clock", "InlineExecutor", "Outcome", "open_brain", "reading", "registration"]
