"""Leader election by a Lease: one planner acts, and the controller sees that one is alive.

The elector is that of `kubernetes.aio`. A lost connection counts as an attempt that failed, and not
as the end; and a planner that stops in good order gives the Lease back. The controller lifts the
gates when the Lease is 30 s old, so that a dead planner holds nobody up.
"""

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

from penstock.scheduler.service.api import Api, CallError

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 12
RENEW_SECONDS: Final = 8.0
RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class LeaseName:
    """The Lease that planners contend for."""

    namespace: str
    name: str


class _Lock(LeaseLock):
    """A lock whose failures are failures of one attempt; creates the Lease without ``pretty``,
    which the library (kubernetes 37.0) passes in a form that its own client refuses."""

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            async with asyncio.timeout(RENEW_SECONDS / 2):
                return await super().get(name, namespace)
        except (aiohttp.ClientError, TimeoutError) as error:
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        return await self._try(self.api_instance.create_namespaced_lease(namespace, body))

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        return bool(await self._try(super().update(name, namespace, updated_record)))

    async def _try(self, write: Awaitable[Any]) -> bool:
        try:
            async with asyncio.timeout(RENEW_SECONDS / 2):
                return await write is not False
        except (ApiException, aiohttp.ClientError, TimeoutError) as error:
            logger.warning("the Lease was not written: %s", str(error) or type(error).__name__)
            return False


async def lead(
    client: ApiClient, lease: LeaseName, identity: str, work: Callable[[], Awaitable[None]]
) -> bool:
    """Wait for the Lease, work while it is held; True where the work ended by itself.

    Raises:
        Exception: what the work raised.
    """
    over = asyncio.Event()
    working: asyncio.Task[None] | None = None

    async def begin() -> None:
        nonlocal working

        async def until_over() -> None:
            try:
                await work()
            finally:
                over.set()

        working = asyncio.create_task(until_over(), name="planner")
        await over.wait()

    async def lost() -> None:
        logger.error("the Lease %s/%s was lost", lease.namespace, lease.name)

    lock = _Lock(lease.name, lease.namespace, identity, client)
    config = electionconfig.Config(lock, LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, begin, lost)
    elector = asyncio.create_task(leaderelection.LeaderElection(config).run(), name="elector")
    done = asyncio.create_task(over.wait(), name="work over")
    try:
        await asyncio.wait((elector, done), return_when=asyncio.FIRST_COMPLETED)
        if elector.done() and not done.done():
            elector.result()
        return done.done()
    finally:
        tasks = [task for task in (elector, done, working) if task is not None]
        for task in tasks:
            task.cancel()
        for result in (await asyncio.gather(*tasks, return_exceptions=True))[2:]:
            if isinstance(result, Exception):
                raise result


async def give_back(api: Api, lease: LeaseName, identity: str) -> None:
    """Give the Lease back, if it is ours, so that nobody has to wait for it to run out."""
    try:
        held = await api.get("leases", lease.namespace, lease.name)
        if (held.get("spec") or {}).get("holderIdentity") == identity:
            version = held["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
            await api.merge("leases", lease.namespace, lease.name, body)
    except CallError as error:
        logger.info("the Lease was not given back and will run out: %s", error)
