"""Leader election by a Lease: at most one replica of the controller acts at a time.

The elector is that of `kubernetes.aio`. What is added: a lost connection counts as a failed attempt
instead of ending the elector, and a replica that stops in good order gives the Lease back, so that
the next one need not wait for it to run out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient, V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection import electionconfig, leaderelection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from penstock.controller.api import Api, ApiError

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 12
RENEW_DEADLINE_SECONDS: Final = 8.0
RETRY_SECONDS: Final = 2.0
"""A replica that dies without a word is followed after LEASE_SECONDS + RETRY_SECONDS at the latest;
one that cannot renew stops RENEW_DEADLINE_SECONDS after its last success, before that."""


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


async def lead(
    client: ApiClient, lease: LeaseName, identity: str, work: Callable[[], Awaitable[None]]
) -> bool:
    """Wait for the Lease, work while it is held, and return when either has ended.

    Args:
        client: how to reach the API server.
        lease: the Lease.
        identity: what tells this replica from the others.
        work: cancelled when the Lease is lost.

    Returns:
        Whether the work ended by itself; False: the Lease was lost.
    """
    finished = asyncio.Event()
    worker: asyncio.Task[None] | None = None

    async def started() -> None:
        nonlocal worker
        worker = asyncio.ensure_future(_until_done(work, finished))
        await finished.wait()

    async def stopped() -> None:
        logger.error("the Lease %s/%s was lost", lease.namespace, lease.name)

    lock = _PatientLock(lease.name, lease.namespace, identity, client)
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


async def _until_done(work: Callable[[], Awaitable[None]], finished: asyncio.Event) -> None:
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
