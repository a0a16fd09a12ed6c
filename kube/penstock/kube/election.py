"""Leader election by a Lease: at most one replica acts at a time.

The elector is that of `kubernetes.aio`. What is added: a lost connection counts as a failed attempt
instead of ending the elector, and a replica that stops in good order gives the Lease back, so that
the next one need not wait for it to run out.

On losing the Lease the work is cancelled and the process should end with an error, as controllers
of Kubernetes do: whoever started it starts it again, and nothing that was begun under the lost
Lease lives on. Guaranteed, counted from the last time that the Lease was written:

- the work is cancelled after `RENEW_DEADLINE_SECONDS`, whatever the elector waits for meanwhile: an
  API server that answers nothing holds it up for longer than the Lease lasts;
- work that has not ended after `END_DEADLINE_SECONDS`, before the Lease runs out, ends with its
  process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection import electionconfig, leaderelection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from penstock.kube.api import Api
from penstock.kube.errors import ApiError
from penstock.kube.namespace import ensure_namespace

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 12
RENEW_DEADLINE_SECONDS: Final = 8.0
RETRY_SECONDS: Final = 2.0
"""A replica that dies without a word is followed after LEASE_SECONDS + RETRY_SECONDS at the latest;
one that cannot renew stops RENEW_DEADLINE_SECONDS after its last success, before that."""
END_DEADLINE_SECONDS: Final = 11.0
"""Work that was cancelled and has not ended so long after the last success ends with its process:
that is while nobody else can hold the Lease."""
LOST: Final = 1
"""Exit status of a process that lost its Lease: whoever started it starts it again."""

Abandon = Callable[[str], None]
"""Ends the process at once; told what for."""
Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LeaseName:
    """The Lease that the replicas contend for."""

    namespace: str
    name: str


def time_left(deadline_seconds: float, written: float | None, now: float) -> float:
    """How much is left of the time that counts from when the Lease was last written.

    Args:
        deadline_seconds: how long that time is.
        written: when that was, monotonic; None: not yet, and all of it is left.
        now: monotonic.
    """
    return deadline_seconds if written is None else written + deadline_seconds - now


def exit_at_once(what: str) -> None:
    """End the process without waiting for anything in it; it says why in one line."""
    logger.critical("%s", what)
    os._exit(LOST)


class _PatientLock(LeaseLock):
    """A lock on a Lease that reports a connection that failed as an attempt that failed.

    It knows when the Lease was last written: at `written` that attempt began.

    It also creates the Lease itself: the library (kubernetes 37.0) passes ``pretty=True`` there,
    which its generated client refuses, as it takes a string.
    """

    written: float | None = None

    def left(self, deadline_seconds: float) -> float:
        """How much is left of a time since then."""
        return time_left(deadline_seconds, self.written, time.monotonic())

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            async with asyncio.timeout(RENEW_DEADLINE_SECONDS / 2):
                return await super().get(name, namespace)
        except (aiohttp.ClientError, TimeoutError) as error:
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        return await self._attempt(self._create(name, namespace, election_record))

    async def _create(self, name: str, namespace: str, election_record: Any) -> bool:
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        try:
            await self.api_instance.create_namespaced_lease(namespace, body)
        except ApiException as error:
            logger.info("the Lease was not created: %s %s", error.status, error.reason)
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        return await self._attempt(super().update(name, namespace, updated_record))

    async def _attempt(self, write: Awaitable[bool]) -> bool:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(RENEW_DEADLINE_SECONDS / 2):
                succeeded = await write
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.warning("the Lease could not be written: %s", str(error) or type(error).__name__)
            return False
        if succeeded:
            self.written = begun
        return succeeded


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica that would lead.

    Attributes:
        api: how to reach the API server.
        lease: the Lease; None: no election, for development with one replica only.
        identity: what tells this replica from the others.
        show: told 1 when it begins to lead, and 0 when it no longer does.
        makes_namespace: made before anything else where it is missing; None: all are there.
        abandon: ends the process whose work does not end.
    """

    api: Api
    lease: LeaseName | None
    identity: str
    show: Callable[[float], None] = lambda _: None
    makes_namespace: str | None = None
    abandon: Abandon = exit_at_once

    async def run(self, work: Work, stop: asyncio.Event) -> bool:
        """Wait for the Lease and work while it is held, until told to stop.

        Args:
            work: cancelled when the Lease is lost, and when told to stop.
            stop: set from outside, by a signal.

        Returns:
            Whether it ended in good order; False: the Lease was lost.

        Raises:
            ConfigurationError: the namespace is missing and may not be made.
            Exception: what the work raised.
        """
        orderly = await until_stopped(self._lead(work), stop)
        if orderly and self.lease is not None:
            await give_back(self.api, self.lease, self.identity)
        return orderly

    async def _lead(self, work: Work) -> bool:
        if self.makes_namespace is not None:
            await ensure_namespace(self.api, self.makes_namespace, RETRY_SECONDS)
        if self.lease is not None:
            return await lead(
                self.api, self.lease, self.identity, lambda: self._work(work), self.abandon
            )
        await self._work(work)
        return True

    async def _work(self, work: Work) -> None:
        self.show(1)
        logger.info("leading as %s", self.identity)
        try:
            await work()
        finally:
            self.show(0)


async def until_stopped(work: Coroutine[Any, Any, bool], stop: asyncio.Event) -> bool:
    """Work to its end, or until told to stop, which cancels it.

    Returns:
        Whether it ended in good order: told to stop, or by what the work returned.

    Raises:
        Exception: what the work raised.
    """
    going = asyncio.ensure_future(work)
    stopped = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait((going, stopped), return_when=asyncio.FIRST_COMPLETED)
    orderly = stopped.done()
    stopped.cancel()
    if not orderly:
        return await going
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    return True


async def lead(
    api: Api, lease: LeaseName, identity: str, work: Work, abandon: Abandon = exit_at_once
) -> bool:
    """Wait for the Lease, work while it is held, and return when either has ended.

    Args:
        api: how to reach the API server.
        lease: which one.
        identity: what tells this process from others.
        work: cancelled when the Lease is lost, and when this is cancelled.
        abandon: called where the cancelled work does not end while the Lease is surely ours.

    Returns:
        Whether the work ended by itself; False: the Lease was lost.

    Raises:
        Exception: what the work raised.
    """
    leading, finished = asyncio.Event(), asyncio.Event()
    worker: asyncio.Task[None] | None = None

    async def started() -> None:
        nonlocal worker
        worker = asyncio.ensure_future(_until_done(work, finished))
        leading.set()
        await finished.wait()

    async def stopped() -> None:
        logger.error("the Lease %s/%s was lost", lease.namespace, lease.name)

    async def fence() -> None:
        await leading.wait()
        while True:
            left = lock.left(RENEW_DEADLINE_SECONDS)
            if left <= 0:
                return await stopped()
            await asyncio.sleep(left)

    lock = _PatientLock(lease.name, lease.namespace, identity, api.client)
    config = electionconfig.Config(
        lock, LEASE_SECONDS, RENEW_DEADLINE_SECONDS, RETRY_SECONDS, started, stopped
    )
    elector = asyncio.create_task(leaderelection.LeaderElection(config).run(), name="elector")
    fenced = asyncio.create_task(fence(), name="the Lease's end")
    done = asyncio.create_task(finished.wait(), name="work done")
    try:
        await asyncio.wait((elector, fenced, done), return_when=asyncio.FIRST_COMPLETED)
        if elector.done() and not done.done():
            elector.result()
        return done.done()
    finally:
        helpers = (elector, fenced, done)
        for task in helpers:
            task.cancel()
        ended = worker is None or await _ended(worker, lambda: lock.left(END_DEADLINE_SECONDS))
        if not ended:
            abandon(
                f"what was done under the Lease {lease.namespace}/{lease.name} does not end: the "
                "process ends, before others take the Lease"
            )
        await asyncio.gather(*helpers, return_exceptions=True)
        if worker is not None and ended:
            _raise_its_error(worker)


async def _ended(task: asyncio.Task[None], left: Callable[[], float]) -> bool:
    """Cancel a task and wait until it has ended, or no time is left; whether it has.

    Being cancelled meanwhile ends nothing sooner.
    """
    task.cancel()
    while not task.done() and (seconds := left()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,), timeout=seconds)
    return task.done()


def _raise_its_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        raise error


async def _until_done(work: Work, finished: asyncio.Event) -> None:
    try:
        await work()
    finally:
        finished.set()


async def give_back(api: Api, lease: LeaseName, identity: str) -> None:
    """Give the Lease back, if it is ours, so that another replica can take over at once."""
    try:
        held = await api.get("leases", lease.namespace, lease.name)
        if (held.get("spec") or {}).get("holderIdentity") != identity:
            return
        version = held["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
        await api.patch("leases", lease.namespace, lease.name, body)
    except ApiError as error:
        logger.info("the Lease was not given back and will run out: %s", error)
