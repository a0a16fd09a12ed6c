"""TrainJobs that are run in place: watched, converted into ElasticJobs, their statuses written.

Apart from the passes over ElasticJobs, which know nothing of it: an ElasticJob that a TrainJob owns
is one like any other. A cluster without the kind, or that gives the controller no right to it, has
its jobs run all the same; it is looked for now and then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime
from typing import Final

from penstock.base.shards import ALL_JOBS, Share
from penstock.controller.execution.event_recorder import EventRecorder
from penstock.controller.metrics import Metrics
from penstock.controller.queue import KeyedQueue
from penstock.controller.reconcile.model.actions import RecordEvent
from penstock.controller.reconcile.model.observed import Job
from penstock.controller.reconcile.status import merge_patch
from penstock.controller.reconcile.train_job import (
    KIND,
    RUNTIME_GRACE_SECONDS,
    Json,
    Obstacle,
    ObstacleReason,
    Step,
    TrainJob,
    account,
    awaited,
    converted,
    forbidden,
    is_news,
    named_runtime,
    next_step,
    read_train_job,
    status_of,
)
from penstock.controller.store import JobKey, Store
from penstock.convert.assembly import Conversion
from penstock.convert.source import RefusedError
from penstock.convert.sources.train_job import is_known_by_name
from penstock.crds.events import EventReason
from penstock.crds.group import ELASTICJOB_PLURAL
from penstock.kube.api import Api, Page
from penstock.kube.errors import ApiError, ApiRefusedError
from penstock.kube.watch import Watch

logger = logging.getLogger(__name__)

PLURAL: Final = "trainjobs"
_WORKERS: Final = 4
_LOOK_FOR_KIND_SECONDS: Final = 10.0
_COALESCE_SECONDS: Final = 0.02
_RUNTIME_CHECK_SECONDS: Final = 2.0


class _RuntimeMissingError(Exception):
    """The runtime that a TrainJob names is not there, and may still come."""


class _HeldUpError(Exception):
    """The API server does not let an ElasticJob be made, which the TrainJob says by now."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.message)
        self.reason = obstacle.reason


class TrainJobs:
    """Runs the TrainJobs whose ``spec.managedBy`` is this controller's.

    Args:
        api: the API server.
        store: the ElasticJobs, whose `changed` tells of them.
        managed_by: of whom the TrainJobs are run.
        namespace: the one namespace to serve; None: all.
        metrics: where failures are counted.
        clock: the present time.
        identity: what tells this replica from others in Events.
        random_source: for the jitter of pauses.
        share: whose jobs are looked after; a TrainJob's ElasticJob has its name.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        managed_by: str,
        namespace: str | None,
        metrics: Metrics,
        clock: Callable[[], datetime],
        identity: str,
        random_source: random.Random,
        share: Share = ALL_JOBS,
    ) -> None:
        self._api = api
        self._store = store
        self._share = share
        self._managed_by = managed_by
        self._metrics = metrics
        self._clock = clock
        self._events = EventRecorder(api, metrics, clock, identity)
        self._jobs: dict[JobKey, TrainJob] = {}
        self._queue: KeyedQueue[JobKey] = KeyedQueue(random_source)
        self._watch = Watch(
            api,
            PLURAL,
            replace=self._replace,
            take=self._take,
            namespace=namespace,
            random_source=random_source,
        )

    def changed(self, key: JobKey) -> None:
        """The ElasticJob of a name has another state, or is no more."""
        if key in self._jobs:
            self._queue.add_after(key, _COALESCE_SECONDS)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self._until_kind_is_there()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch.run(), name="TrainJob watch")
                for number in range(_WORKERS):
                    group.create_task(self._work(), name=f"TrainJob worker {number}")
        finally:
            self._queue.close()

    async def _until_kind_is_there(self) -> None:
        told = False
        while True:
            try:
                await self._api.ping(PLURAL)
            except ApiError as error:
                if not told:
                    logger.warning(
                        "no TrainJobs are run: %s; needed are the CRDs of Kubeflow Trainer, and"
                        " the right to list and watch trainjobs.trainer.kubeflow.org; looked for"
                        " every %.0f s",
                        error,
                        _LOOK_FOR_KIND_SECONDS,
                    )
                    told = True
                await asyncio.sleep(_LOOK_FOR_KIND_SECONDS)
            else:
                return

    # Observing

    def _replace(self, page: Page) -> None:
        before = set(self._jobs)
        self._jobs.clear()
        for raw in page.items:
            self._put(raw)
        for key in before - self._jobs.keys():
            self._queue.forget(key)

    def _take(self, kind: str, raw: Json) -> None:
        if kind == "DELETED":
            key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
            self._jobs.pop(key, None)
            self._queue.forget(key)
        elif kind in {"ADDED", "MODIFIED"}:
            self._put(raw)

    def _put(self, raw: Json) -> None:
        """Keep a TrainJob of ours; what an own write has already taught is not undone."""
        found = read_train_job(raw)
        if found.managed_by != self._managed_by or not self._share.owns(*found.key):
            return
        known = self._jobs.get(found.key)
        if known is not None and int(known.resource_version) >= int(found.resource_version):
            return
        self._jobs[found.key] = found
        self._queue.add(found.key)

    # Working

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._try(key)
            finally:
                self._queue.done(key)

    async def _try(self, key: JobKey) -> None:
        try:
            await self._pass(key)
        except _RuntimeMissingError:
            self._queue.add_after(key, _RUNTIME_CHECK_SECONDS)
        except _HeldUpError as error:
            pause = self._queue.failed(key)
            self._metrics.errors.labels(error.reason).inc()
            logger.warning("TrainJob %s/%s: %s; next try in %.1f s", *key, error, pause)
        except ApiError as error:
            pause = self._queue.failed(key, getattr(error, "retry_after", None) or 0.0)
            self._metrics.errors.labels(error.reason).inc()
            level = logging.DEBUG if error.code == 409 else logging.WARNING
            logger.log(level, "TrainJob %s/%s: %s; next try in %.1f s", *key, error, pause)
        except Exception as error:  # one bad object must not stop the others
            pause = self._queue.failed(key)
            self._metrics.errors.labels(type(error).__name__).inc()
            logger.exception("TrainJob %s/%s: fault; next try in %.1f s", *key, pause)
        else:
            self._queue.succeeded(key)

    async def _pass(self, key: JobKey) -> None:
        train_job, job = self._jobs.get(key), self._store.job(key)
        if train_job is None:
            return
        obstacle: Obstacle | None = None
        step = next_step(train_job, job)
        match step:
            case Step.MAKE:
                obstacle = await self._make(train_job)
            case Step.SUSPEND:
                await self._patch_job(train_job, job, {"suspend": True})
            case Step.RESUME:
                obstacle = await self._resume(train_job, job)
            case Step.NAME_TAKEN if await self._is_taken(train_job):
                text = f"an ElasticJob {train_job.name} is there, and is not this TrainJob's"
                obstacle = Obstacle(
                    ObstacleReason.NAME_TAKEN,
                    f"{text}: delete it, or give the TrainJob another name",
                )
            case Step.AWAIT_OLD_JOB if job is not None:
                owner = self._jobs.get((job.namespace, job.owner_name))
                lives = owner is not None and owner.uid == job.owner_uid
                obstacle = awaited(job, owner_lives=lives)
        if obstacle is not None and obstacle.final:
            await self._tell(train_job, EventReason.NOT_CONVERTED, obstacle.message)
        job = self._store.job(key)
        if job is not None and job.owner_uid != train_job.uid:
            job = None
        await self._write_status(train_job, job, obstacle)
        if obstacle is not None and not obstacle.final:
            await self._tell_of_waiting(train_job, obstacle)

    async def _tell_of_waiting(self, train_job: TrainJob, obstacle: Obstacle) -> None:
        """Tell once of what holds a TrainJob up, and have it tried again.

        For an ElasticJob that goes nobody has to do anything, and its going says when to look.

        Raises:
            _HeldUpError: nothing else says when.
        """
        if obstacle.reason is ObstacleReason.AWAITS_DELETION:
            return
        if is_news(train_job, obstacle):
            await self._tell(train_job, EventReason.NOT_CONVERTED, obstacle.message)
        if obstacle.reason is not ObstacleReason.NAME_TAKEN:
            raise _HeldUpError(obstacle)

    async def _make(self, train_job: TrainJob) -> Obstacle | None:
        """Make the ElasticJob; why it is not made."""
        try:
            conversion = await self._converted(train_job)
            if not isinstance(conversion, Conversion):
                return conversion
            created = await self._api.create(
                ELASTICJOB_PLURAL, train_job.namespace, conversion.result
            )
        except ApiRefusedError as error:
            if error.reason == "AlreadyExists":
                found = await self._api.get(ELASTICJOB_PLURAL, *train_job.key)
                self._store.put_job(found)  # and so this TrainJob is looked at again
                return None
            if error.code == 422:
                return Obstacle(ObstacleReason.NOT_CONVERTIBLE, str(error))
            if error.code == 403:
                return forbidden(str(error))
            raise
        self._store.put_job(created)
        await self._tell(train_job, EventReason.CONVERTED, account(conversion))
        return None

    async def _is_taken(self, train_job: TrainJob) -> bool:
        """Look once more before it is said for good; the watch of ElasticJobs may be late."""
        known = self._store.job(train_job.key)
        try:
            found = await self._api.get(ELASTICJOB_PLURAL, *train_job.key)
        except ApiRefusedError as error:
            if error.code != 404 or known is None:
                raise
            self._store.drop_job(train_job.key, known.uid)
            return False
        self._store.put_job(found)
        step = next_step(train_job, self._store.job(train_job.key))
        return step is Step.NAME_TAKEN

    async def _resume(self, train_job: TrainJob, job: Job | None) -> Obstacle | None:
        """Go on, with the pods that the TrainJob now asks for."""
        conversion = await self._converted(train_job)
        if not isinstance(conversion, Conversion):
            return conversion
        there = await self._api.get(ELASTICJOB_PLURAL, *train_job.key)
        roles: Json = {}
        for role, wanted in conversion.result["spec"]["replicaSpecs"].items():
            found = there["spec"]["replicaSpecs"].get(role) or {}
            if change := merge_patch(found.get("template") or {}, wanted["template"]):
                roles[role] = {"template": change}
        spec: Json = {"suspend": False, **({"replicaSpecs": roles} if roles else {})}
        await self._patch_job(train_job, job, spec)
        return None

    async def _patch_job(self, train_job: TrainJob, job: Job | None, spec: Json) -> None:
        if job is None:
            return
        body = {"metadata": {"uid": job.uid}, "spec": spec}
        self._store.put_job(await self._api.patch(ELASTICJOB_PLURAL, *train_job.key, body))

    async def _converted(self, train_job: TrainJob) -> Conversion | Obstacle:
        """The ElasticJob that a TrainJob asks for, or why there is none.

        Raises:
            _RuntimeMissingError: its runtime is not there yet.
        """
        plural, name = named_runtime(train_job)
        runtime: Json | None = None
        if plural and name:
            try:
                namespace = train_job.namespace if plural == "trainingruntimes" else None
                runtime = await self._api.get(plural, namespace, name)
            except ApiRefusedError as error:
                if error.code != 404:
                    raise
                if not is_known_by_name(name):
                    age = (self._clock() - train_job.created).total_seconds()
                    if age < RUNTIME_GRACE_SECONDS:
                        raise _RuntimeMissingError from None
                    text = f"spec.runtimeRef: {name}: is not in {plural} of the cluster"
                    return Obstacle(
                        ObstacleReason.RUNTIME_NOT_FOUND,
                        f"{text}: make it, and then the TrainJob anew",
                    )
        try:
            return converted(train_job, runtime)
        except RefusedError as error:
            return Obstacle(ObstacleReason.NOT_CONVERTIBLE, str(error))

    async def _write_status(
        self, train_job: TrainJob, job: Job | None, obstacle: Obstacle | None
    ) -> None:
        """Write the status of a TrainJob that is still as it was seen."""
        wanted = status_of(train_job, job, obstacle, self._clock())
        change = merge_patch(train_job.status, wanted)
        if not change or train_job.deleting:
            return
        body = {
            "metadata": {"uid": train_job.uid, "resourceVersion": train_job.resource_version},
            "status": change,
        }
        try:
            written = await self._api.patch(PLURAL, *train_job.key, body, subresource="status")
        except ApiRefusedError as error:
            if error.code == 404:
                return
            raise
        if train_job.key in self._jobs:
            self._put(written)

    async def _tell(self, train_job: TrainJob, reason: EventReason, message: str) -> None:
        about = {
            "apiVersion": train_job.api_version,
            "kind": KIND,
            "name": train_job.name,
            "namespace": train_job.namespace,
            "uid": train_job.uid,
        }
        await self._events.record_on(about, RecordEvent(reason, message[:1024]))
