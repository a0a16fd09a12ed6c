"""One pass over one key: take what the store holds, decide, carry out.

It knows of no queue and no watch, so that tests drive it against a server of their own, pass by
pass, through every crash and every late event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from penstock.controller.execution.executor import Executor
from penstock.controller.execution.tokens import JobTokens
from penstock.controller.job_cache import JobCache
from penstock.controller.metrics import Metrics
from penstock.controller.reconcile import Observed, Settings, reconcile
from penstock.controller.reconcile.fault import name_fault
from penstock.controller.reconcile.model.actions import RequeueAt
from penstock.controller.reconcile.model.observed import Job, Scale
from penstock.controller.reconcile.orphan_scale import reconcile_lone_scale
from penstock.controller.store import JobKey, Store
from penstock.crds.conditions import JobCondition
from penstock.crds.group import ELASTICJOB_PLURAL
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

_WITHOUT_OBJECTS: Final = (
    JobCondition.SUCCEEDED,
    JobCondition.FAILED,
    JobCondition.SUSPENDED,
)


class Reconciler:
    """Reconciles keys, one at a time for each key, and remembers what came of it."""

    def __init__(
        self,
        api: Api,
        store: Store,
        settings: Settings,
        metrics: Metrics,
        clock: Callable[[], datetime],
        identity: str,
        key_namespace: str = "default",
    ) -> None:
        self._api = api
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._executor = Executor(
            api, store, JobTokens(api, key_namespace), metrics, clock, identity
        )
        self._memories: dict[JobKey, tuple[str, JobCache]] = {}

    async def reconcile(self, key: JobKey, *, planner_alive: bool) -> datetime | None:
        """One pass.

        Args:
            key: namespace and name of the job.
            planner_alive: whether the planner that pins data workers renews its Lease.

        Returns:
            When to look again even if nothing happens, or None.

        Raises:
            ApiError: an action failed; look again after a pause.
        """
        job = self._store.job(key)
        scales = self._store.scales(key)
        lone = [scale for scale in scales if job is None or scale.job_uid != job.uid]
        again = await self._lone_scales(key, lone)
        if job is None:
            self._memories.pop(key, None)
            return again
        own = tuple(one for one in scales if one.job_uid == job.uid)
        due = await self._job(key, job, own, planner_alive=planner_alive)
        return min((when for when in (again, due) if when is not None), default=None)

    async def _job(
        self, key: JobKey, job: Job, scales: tuple[Scale, ...], *, planner_alive: bool
    ) -> datetime | None:
        now = self._clock()
        memory = self._memory(key, job.uid)
        pods = self._store.pods(key, job.uid)
        memory.observe(job, frozenset(pod.uid for pod in pods))
        observed = Observed(
            job=job,
            scales=scales,
            pods=pods,
            reserved=frozenset(memory.reserved),
            refusals=dict(memory.refusals),
            logs=dict(memory.logs),
            unresizable=frozenset(memory.unresizable),
            known_templates=dict(memory.known_templates),
            cache_refused=memory.cache_refused,
            gang_refusal=memory.gang_refusal,
            objects_seen_at=memory.objects_seen_at,
            objects_missing=memory.objects_missing,
            planner_alive=planner_alive,
            status_written_at=memory.status_written_at,
        )
        begun = time.perf_counter()
        actions = reconcile(observed, self._settings, now)
        self._metrics.decide_seconds.observe(time.perf_counter() - begun)
        return await self._executor.carry_out(key, job, memory, actions)

    async def tell_fault(self, key: JobKey, fault: Exception) -> None:
        """Name in the job's own status what a pass failed at; once, while it stays the same.

        Raises:
            ApiError: it could not be written.
        """
        job = self._store.job(key)
        if job is None:
            return
        actions = name_fault(job, f"{type(fault).__name__}: {fault}", self._clock())
        await self._executor.carry_out(key, job, self._memory(key, job.uid), actions)

    # The objects that jobs own

    def jobs_with_objects(self) -> dict[JobKey, Job]:
        """The jobs that should have all their own objects now."""
        return {
            job.key: job
            for job in self._store.jobs()
            if job.status.trainer is not None
            and not job.deleting
            and job.managed_by in {None, self._settings.manager}
            and not any(job.status.is_true(kind) for kind in _WITHOUT_OBJECTS)
        }

    def objects_missing(self, job: Job, seen: datetime) -> bool:
        """One of a job's objects was found to be gone at a time.

        Returns:
            Whether that is news: false where this process has made sure of them since.
        """
        return self._memory(job.key, job.uid).miss_objects(seen)

    async def _lone_scales(self, key: JobKey, scales: list[Scale]) -> datetime | None:
        again: datetime | None = None
        for scale in scales:
            actions = reconcile_lone_scale(scale, self._clock())
            if any(not isinstance(action, RequeueAt) for action in actions):
                await self._confirm_missing(key, scale)
            due = await self._executor.carry_out(key, None, JobCache(), actions)
            again = min((when for when in (again, due) if when is not None), default=None)
        return again

    async def _confirm_missing(self, key: JobKey, scale: Scale) -> None:
        """Look for a lone Scale's job once more before it is refused; the watch may be late."""
        try:
            found = await self._api.get(ELASTICJOB_PLURAL, *key)
        except ApiRefusedError as error:
            if error.code != 404:
                raise
            return
        self._store.put_job(found)
        if found["metadata"]["uid"] == scale.job_uid:
            text = "the job of a Scale was seen late"
            raise ApiRefusedError(text, code=409, reason="JobSeenLate")

    def _memory(self, key: JobKey, uid: str) -> JobCache:
        known = self._memories.get(key)
        if known is None or known[0] != uid:
            known = (uid, JobCache())
            self._memories[key] = known
        return known[1]
