"""Puts one Brain together: the only place that knows every part."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from penstock.base.enums import Strategy
from penstock.brain.algorithms import scale_allreduce
from penstock.brain.algorithms.scale_allreduce import ScaleAllReduceParams
from penstock.brain.configuration import BrainSettings
from penstock.brain.control.administrator_loop import Administrators
from penstock.brain.control.algorithm_settings import Algorithms
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.control.plan_subscribers import PlanSubscribers
from penstock.brain.control.planner import Planner
from penstock.brain.control.sweeper import Sweeper
from penstock.brain.errors import JobNotFoundError
from penstock.brain.executor import Executor, TaskRunner
from penstock.brain.registry import Registry, load
from penstock.brain.service.cluster import ClusterService
from penstock.brain.service.costs import CostService
from penstock.brain.service.forecasts import ForecastService
from penstock.brain.service.jobs import JobService
from penstock.brain.service.ledgers import LedgerService
from penstock.brain.service.nodes import NodeService
from penstock.brain.service.paces import PaceService
from penstock.brain.service.plans import PlanService, ScaleWriter
from penstock.brain.service.profiles import ProfileService
from penstock.brain.service.recorded import RecordedService
from penstock.brain.service.samples import SampleService
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.schema import upgrade

logger = logging.getLogger(__name__)
_RELOAD_SECONDS: Final = 5.0
_SCALES_SECONDS: Final = 5.0
_NOTICE_SECONDS: Final = 2.0
"""A plan that another Brain has made is seen within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """A Brain that runs."""

    settings: BrainSettings
    """The settings at the start."""
    database: Database
    executor: TaskRunner
    algorithms: Algorithms
    administrators: Administrators
    planner: Planner
    sweeper: Sweeper
    jobs: JobService
    samples: SampleService
    plans: PlanService
    ledgers: LedgerService
    profiles: ProfileService
    cluster: ClusterService
    nodes: NodeService
    costs: CostService
    forecasts: ForecastService
    paces: PaceService
    recorded: RecordedService
    watchers: PlanSubscribers
    metrics: BrainMetrics
    clock: Callable[[], float]

    async def configure(self, settings: BrainSettings) -> None:
        """Take over a changed configuration while running.

        Raises a RegistryError and changes nothing where its algorithms cannot be used. What cannot
        change (administrator.concurrency) stays as it was.
        """
        check_algorithms(settings)
        await self.algorithms.configure(settings.algorithms)
        await self.executor.configure(settings.executor)
        self.planner.configure(settings)
        self.administrators.configure(settings.administrator)
        self.sweeper.configure(settings.retention)
        self.samples.configure(settings.symptoms)
        self.costs.configure(settings.prices)

    async def observe(self) -> None:
        """Bring the gauges up to date, before somebody reads them."""
        async with self.database.read() as session:
            counts = await Jobs(self.database, session).count_by_phase()
        for phase, count in counts.items():
            self.metrics.jobs.labels(phase).set(count)
        self.metrics.administered.set(len(self.administrators))
        self.metrics.executors.labels("busy").set(self.executor.busy)
        self.metrics.executors.labels("idle").set(self.executor.size - self.executor.busy)
        self.metrics.watchers.set(len(self.watchers))
        await self.samples.observe()
        await self.nodes.observe()
        await self.profiles.observe()


def check_algorithms(settings: BrainSettings) -> Registry:
    """Load the algorithms. Raises a RegistryError for one that is unknown, broken or misconfigured.

    Every algorithm that a policy names must exist, though it may be switched off.
    """
    registry = load(settings.algorithms)
    disabled = {name for name, own in settings.algorithms.items() if not own.enabled}
    for strategy in Strategy:
        registry.require(name for name in settings.policy(strategy).names() if name not in disabled)
    return registry


@asynccontextmanager
async def running_brain(
    database: Database,
    settings: BrainSettings | None = None,
    *,
    registry: Registry | None = None,
    scales: ScaleWriter | None = None,
    executor: TaskRunner | None = None,
    clock: Callable[[], float] = time.time,
    background: bool = True,
) -> AsyncIterator[Brain]:
    """A Brain on `database`, whose tables are brought up to date first; stopped at the end.

    `background` False: no administrators, no sweeper; nothing happens but on request (for tests).
    `executor`: where algorithms run, if not in processes of their own.
    """
    settings = settings or BrainSettings()
    registry = registry or check_algorithms(settings)
    await upgrade(database)
    metrics = BrainMetrics()
    executor = executor or Executor(settings.executor)
    watchers = PlanSubscribers()
    algorithms = Algorithms(registry, settings.algorithms, database, clock)
    await algorithms.reload()
    cluster = ClusterService(database, clock)
    costs = CostService(database, settings.prices, clock)
    planner = Planner(
        database, executor, algorithms, settings, watchers, clock, metrics, cluster.largest_node
    )
    brain = Brain(
        settings=settings,
        database=database,
        executor=executor,
        algorithms=algorithms,
        administrators=Administrators(
            database, planner, settings.administrator, uuid.uuid4().hex, clock, metrics
        ),
        planner=planner,
        sweeper=Sweeper(database, settings.retention, clock, metrics),
        jobs=JobService(database, planner, watchers, clock),
        samples=SampleService(database, settings.symptoms, clock, metrics),
        plans=PlanService(database, planner, watchers, clock, metrics, scales),
        ledgers=LedgerService(database, clock),
        profiles=ProfileService(database, clock, metrics),
        cluster=cluster,
        nodes=NodeService(database, cluster, clock, metrics),
        costs=costs,
        forecasts=ForecastService(database, costs, clock),
        paces=PaceService(database, clock, lambda: _measuring(algorithms.registry)),
        recorded=RecordedService(database),
        watchers=watchers,
        metrics=metrics,
        clock=clock,
    )
    tasks = _background_tasks(brain) if background else []
    try:
        yield brain
    finally:
        brain.plans.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await brain.samples.close()
        await brain.administrators.stop()
        await executor.close()


def _measuring(registry: Registry) -> ScaleAllReduceParams:
    """By what a job's speed is measured; the defaults where no algorithm of that name is known."""
    name = scale_allreduce.ALGORITHM.name
    params = registry[name].params if name in registry else None
    return params if isinstance(params, ScaleAllReduceParams) else ScaleAllReduceParams()


def _background_tasks(brain: Brain) -> list[asyncio.Task[None]]:
    return [
        asyncio.create_task(brain.administrators.run(), name="administrators"),
        asyncio.create_task(brain.sweeper.run(), name="sweeper"),
        asyncio.create_task(
            _repeat(brain, "algorithms", brain.algorithms.reload, _RELOAD_SECONDS),
            name="algorithms",
        ),
        asyncio.create_task(
            _repeat(brain, "scales", brain.plans.write_scales, _SCALES_SECONDS), name="scales"
        ),
        asyncio.create_task(
            _repeat(brain, "watchers", brain.plans.notice_changes, _NOTICE_SECONDS),
            name="watchers",
        ),
    ]


async def _repeat(
    brain: Brain, name: str, action: Callable[[], Awaitable[None]], seconds: float
) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            async with asyncio.timeout(60):
                await action()
        except (SQLAlchemyError, OSError, TimeoutError, JobNotFoundError) as error:
            brain.metrics.failures.labels(name).inc()
            logger.error("%s: %s: %s; trying again", name, type(error).__name__, error)
        except Exception:
            brain.metrics.failures.labels(name).inc()
            logger.exception("%s: fault in the Brain; trying again", name)
