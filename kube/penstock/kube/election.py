"""Leader election by a Lease: at most one replica acts at a time.

The elector is that of `kubernetes.aio`. What is added: a lost connection counts as a failed attempt
instead of ending the elector, and a replica that stops in good order gives the Lease back, so that
the next one need not wait for it to run out.

On losing the Lease the work is cancelled and the process should end with an error, as controllers
of Kubernetes do: whoever started it starts it again, and nothing that was begun under the lost
Lease lives on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
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

Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LeaseName:
    """The Lease that the replicas contend for."""

    namespace: str
    name: str


class _PatientLock(LeaseLock):
    """A lock on a Lease that reports a connection that failed as an attempt that failed.

    It also creates the Lease itself: the library (kubernetes 37.0) passes ``pretty=True`` there,
    which its generated client refuses, as it takes a string.
    """

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
        try:
            async with asyncio.timeout(RENEW_DEADLINE_SECONDS / 2):
                return await write
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.warning("the Lease could not be written: %s", str(error) or type(error).__name__)
            return False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica that would lead.

    Attributes:
        api: how to reach the API server.
        lease: the Lease; None: no election, for development with one replica only.
        identity: what tells this replica from the others.
        show: told 1 when it begins to lead, and 0 when it no longer does.
        makes_namespace: made before anything else where it is missing; None: all are there.
    """

    api: Api
    lease: LeaseName | None
    identity: str
    show: Callable[[float], None] = lambda _: None
    makes_namespace: str | None = None

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
            return await lead(self.api, self.lease, self.identity, lambda: self._work(work))
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


async def lead(api: Api, lease: LeaseName, identity: str, work: Work) -> bool:
    """Wait for the Lease, work while it is held, and return when either has ended.

    Returns:
        Whether the work ended by itself; False: the Lease was lost.

    Raises:
        Exception: what the work raised.
    """
    finished = asyncio.Event()
    worker: asyncio.Task[None] | None = None

    async def started() -> None:
        nonlocal worker
        worker = asyncio.ensure_future(_until_done(work, finished))
        await finished.wait()

    async def stopped() -> None:
        logger.error("the Lease %s/%s was lost", lease.namespace, lease.name)

    lock = _PatientLock(lease.name, lease.namespace, identity, api.client)
    config = electionconfig.Config(
        lock, LEASE_SECONDS, RENEW_DEADLINE_SECONDS, RETRY_SECONDS, started, stopped
    )
    elector = asyncio.create_task(leaderelection.LeaderElection(config).run(), name="elector")
    done = asyncio.create_task(finished.wait(), name="work done")
    try:
        await asyncio.wait((elector, done), return_when=asyncio.FIRST_COMPLETED)
        if elector.done() and not done.done():
            elector.result()
        return done.done()
    finally:
        tasks = [task for task in (elector, done, worker) if task is not None]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results[2:]:
            if isinstance(result, Exception):
                raise result


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
