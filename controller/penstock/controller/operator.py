"""The controller at work: watches feed a store, the store names keys, workers reconcile them.

One event loop, a few workers, no threads. Nothing is decided here. Passes begin only once complete
lists of jobs, Scales and pods have been read, since a target computed from part of the Scales would
be a wrong one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kubernetes.aio.client import ApiClient

from penstock.base.shards import ALL_JOBS, Share
from penstock.controller import framework
from penstock.controller.metrics import Metrics
from penstock.controller.owned_objects import OwnedObjects
from penstock.controller.queue import KeyedQueue
from penstock.controller.reconcile import Settings
from penstock.controller.reconcile.model.parsing import read_time
from penstock.controller.reconciler import Reconciler
from penstock.controller.store import JobKey, Store
from penstock.controller.train_jobs import TrainJobs
from penstock.crds import labels
from penstock.crds.group import ELASTICJOB_PLURAL, SCALE_PLURAL
from penstock.kube.api import Api, Page
from penstock.kube.errors import ApiError, ApiRefusedError
from penstock.kube.watch import Watch

logger = logging.getLogger(__name__)

PLANNER_DEAD_AFTER_SECONDS: Final = 30.0
_PLANNER_CHECK_SECONDS: Final = 10.0
_RESYNC_SECONDS: Final = 300.0
_RESYNC_AFTER_LIST_SECONDS: Final = 3.0
_CRDS_RETRY_SECONDS: Final = 2.0
_COALESCE_SECONDS: Final = 0.02
"""Changes seldom come alone: ten pods of a job that start are looked at together."""

_BACKSTOP_SECONDS: Final = 600.0
"""A job is looked at this often even if nothing ever names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run.

    Attributes:
        settings: what decisions depend on.
        namespace: the one namespace to serve; None serves all.
        workers: passes at the same time, each over another job.
        identity: what tells this replica from others, in Events and in the Lease.
        key_namespace: where the key of the jobs' tokens lies.
        objects_check_seconds: how often to look for objects of jobs that somebody has deleted.
        planner_lease: namespace and name of the Lease of the planner that places data workers.
        train_jobs_managed_by: the ``spec.managedBy`` of TrainJobs that are run in place; empty:
            none are.
    """

    settings: Settings
    namespace: str | None = None
    workers: int = 16
    identity: str = "penstock-controller"
    key_namespace: str = "default"
    objects_check_seconds: float = 15.0
    planner_lease: tuple[str, str] = ("penstock-system", "penstock-scheduler")
    train_jobs_managed_by: str = ""


def utc_now() -> datetime:
    """The present time."""
    return datetime.now(UTC)


class _StoppedError(Exception):
    """The framework was told to stop."""


class Operator:
    """One replica of the controller while it leads.

    Args:
        client: how to reach the API server.
        options: how to run.
        metrics: where to count.
        clock: the present time.
        random_source: for the jitter of pauses.
        watching: called when the framework has begun to watch; it has then put its own signal
            handlers in the place of everybody else's.
        share: whose jobs are looked after; of others nothing is kept.
    """

    def __init__(
        self,
        client: ApiClient,
        options: Options,
        metrics: Metrics,
        *,
        clock: Callable[[], datetime] = utc_now,
        random_source: random.Random | None = None,
        watching: Callable[[], None] = lambda: None,
        share: Share = ALL_JOBS,
    ) -> None:
        self._share = share
        self._watching = watching
        self._options = options
        self._metrics = metrics
        self._clock = clock
        self._random = random_source or random.Random()  # noqa: S311  jitter, no secret
        self.api = Api(client, metrics.count_request)
        self.queue: KeyedQueue[JobKey] = KeyedQueue(self._random)
        self.store = Store(self._changed, self._written, share)
        self._planner_alive = False
        self._reconciler = Reconciler(
            self.api,
            self.store,
            options.settings,
            metrics,
            clock,
            options.identity,
            options.key_namespace,
        )
        # Of pods there are many more than of jobs, and kopf's watch costs several times as much.
        self._pods = Watch(
            self.api,
            "pods",
            replace=self._replace_pods,
            take=self.store.watched_pod,
            namespace=options.namespace,
            selector=labels.JOB_UID,
            restarted=lambda cause: metrics.watch_restarts.labels(cause).inc(),
            random_source=self._random,
        )
        self._owned = OwnedObjects(self.api, options.namespace)
        self._train_jobs: TrainJobs | None = None
        if options.train_jobs_managed_by:
            self._train_jobs = TrainJobs(
                self.api,
                self.store,
                options.train_jobs_managed_by,
                options.namespace,
                metrics,
                clock,
                options.identity,
                self._random,
                share,
            )
        self._resync_soon = asyncio.Event()
        self.synced = asyncio.Event()

    def _replace_pods(self, page: Page) -> None:
        self.store.replace_pods(page.items, int(page.resource_version))

    def _changed(self, key: JobKey) -> None:
        self.queue.add_after(key, _COALESCE_SECONDS)

    def _written(self, key: JobKey) -> None:
        if self._train_jobs is not None:
            self._train_jobs.changed(key)

    async def run(self) -> None:
        """Work until cancelled or told to stop, or until a part of it ends with an error."""
        stop, ready = asyncio.Event(), asyncio.Event()
        registry = framework.make_registry(
            self.store, self.api.client.configuration, self._resync_soon.set, self._share
        )
        await self._resync_when_possible()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run(), name="pod watch")
                await self._pods.synced.wait()
                await self._look_at_planner()
                self.synced.set()
                for number in range(self._options.workers):
                    group.create_task(self._work(), name=f"worker {number}")
                group.create_task(self._resync_forever(), name="resync")
                group.create_task(self._watch_planner(), name="planner's lease")
                group.create_task(self._look_for_missing_objects(), name="owned objects")
                if self._train_jobs is not None:
                    group.create_task(self._train_jobs.run(), name="TrainJobs")
                watch = framework.watch(registry, self._options.namespace, stop, ready)
                group.create_task(self._until_stopped(watch), name="kopf")
                await ready.wait()
                self._watching()
        except* _StoppedError:
            logger.info("told to stop")
        finally:
            stop.set()
            self.queue.close()

    @staticmethod
    async def _until_stopped(watch: Awaitable[None]) -> None:
        """The framework runs for ever, unless it gets a signal before we have our handlers back."""
        await watch
        raise _StoppedError

    # Observing

    async def _resync_when_possible(self) -> None:
        told = False
        while True:
            try:
                await self.resync()
            except ApiError as error:
                if not told:
                    hint = (
                        "; install the CRDs with: penstock crds | kubectl apply -f -"
                        if error.code == 404
                        else ""
                    )
                    logger.warning("cannot list ElasticJobs and Scales: %s%s", error, hint)
                    told = True
                await asyncio.sleep(_CRDS_RETRY_SECONDS)
            else:
                return

    async def resync(self) -> None:
        """Read complete lists of jobs, Scales and pods, and look at every job once."""
        namespace = self._options.namespace
        jobs = await self.api.list(ELASTICJOB_PLURAL, namespace)
        scales = await self.api.list(SCALE_PLURAL, namespace)
        self.store.replace(
            jobs.items, int(jobs.resource_version), scales.items, int(scales.resource_version)
        )
        if self._pods.synced.is_set():  # before that, its own first list is still to come
            self._replace_pods(await self.api.list("pods", namespace, labels.JOB_UID))
        for key in self.store.job_keys():
            self.queue.add(key)

    async def _resync_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_RESYNC_SECONDS):
                    await self._resync_soon.wait()
                await asyncio.sleep(_RESYNC_AFTER_LIST_SECONDS)  # kopf now watches again
            except TimeoutError:
                pass
            self._resync_soon.clear()
            try:
                await self.resync()
            except ApiError as error:
                logger.warning("could not compare the lists of jobs, Scales and pods: %s", error)
                self._metrics.errors.labels(error.reason).inc()

    async def _look_for_missing_objects(self) -> None:
        while True:
            await asyncio.sleep(self._options.objects_check_seconds)
            begun = self._clock()
            jobs = self._reconciler.jobs_with_objects()
            try:
                missing = await self._owned.find_missing(jobs)
            except ApiError as error:
                logger.warning("could not look for the objects that jobs own: %s", error)
                self._metrics.errors.labels(error.reason).inc()
                continue
            for key in missing:
                if self._reconciler.objects_missing(jobs[key], begun):
                    self.queue.add(key)

    async def _watch_planner(self) -> None:
        while True:
            await asyncio.sleep(_PLANNER_CHECK_SECONDS)
            before = self._planner_alive
            await self._look_at_planner()
            if before and not self._planner_alive:
                for key in self.store.job_keys():
                    self.queue.add(key)

    async def _look_at_planner(self) -> None:
        namespace, name = self._options.planner_lease
        try:
            lease = await self.api.get("leases", namespace, name)
        except ApiRefusedError:
            self._planner_alive = False
            return
        except ApiError as error:
            logger.info("the planner's Lease could not be read: %s", error)
            return
        renewed = read_time((lease.get("spec") or {}).get("renewTime"))
        age = None if renewed is None else (self._clock() - renewed).total_seconds()
        self._planner_alive = age is not None and age < PLANNER_DEAD_AFTER_SECONDS

    # Working

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            self._metrics.queue_depth.set(len(self.queue))
            try:
                await self._pass(key)
            finally:
                self.queue.done(key)

    async def _pass(self, key: JobKey) -> None:
        begun = time.perf_counter()
        try:
            again = await self._reconciler.reconcile(key, planner_alive=self._planner_alive)
        except ApiError as error:
            retry = getattr(error, "retry_after", None) or 0.0
            pause = self.queue.failed(key, retry)
            self._metrics.errors.labels(error.reason).inc()
            level = logging.DEBUG if error.code == 409 else logging.WARNING
            logger.log(
                level, "%s/%s: %s; next try in %.1f s", *key, error, pause, extra={"job": key}
            )
        except Exception as error:  # one bad object must not stop the others
            pause = self.queue.failed(key)
            self._metrics.errors.labels(type(error).__name__).inc()
            logger.exception("%s/%s: fault in the controller; next try in %.1f s", *key, pause)
            await self._tell_fault(key, error)
        else:
            self.queue.succeeded(key)
            if key not in self.store.job_keys():
                self.queue.forget(key)
            if again is not None:
                delay = (again - self._clock()).total_seconds()
                self.queue.add_after(key, min(delay, _BACKSTOP_SECONDS))
        self._metrics.reconcile_seconds.observe(time.perf_counter() - begun)

    async def _tell_fault(self, key: JobKey, fault: Exception) -> None:
        try:
            await self._reconciler.tell_fault(key, fault)
        except ApiError as error:
            logger.info("%s/%s: its status could not name the fault: %s", *key, error)

    def report(self) -> None:
        """Bring the gauges up to date; called before they are read."""
        self._metrics.queue_depth.set(len(self.queue))
        for kind, count in self.store.counts().items():
            self._metrics.objects.labels(kind).set(count)
