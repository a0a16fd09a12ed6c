"""One process among those that divide the jobs: reads and writes Leases, decides nothing.

The decisions are `member.step`'s. A look reads the number in force, and while no work goes on all
Leases; nothing else happens meanwhile, so that a look begins after what it is to see. To renew a
Lease is the elector's (`penstock.kube.election`), which ends the work when it cannot in time, or
the process with it. A look that is not answered is given up, so that nothing waits behind it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.base.shards import (
    MOST_SHARDS,
    NUMBER_KEY,
    NUMBER_OBJECT,
    Share,
    holder_of,
    lease_name,
    read_number,
)
from penstock.controller.shards.member import (
    Begin,
    Blind,
    Contend,
    Event,
    Got,
    Lease,
    Looked,
    Lost,
    Member,
    Stop,
    step,
)
from penstock.kube import election
from penstock.kube.api import Api
from penstock.kube.election import (
    Abandon,
    LeaseName,
    exit_at_once,
    give_back,
    lead,
    until_stopped,
)
from penstock.kube.errors import ApiError, ApiRefusedError
from penstock.kube.namespace import ensure_namespace

logger = logging.getLogger(__name__)

ShareWork = Callable[[Share], Awaitable[None]]


@dataclass(slots=True)
class _Term:
    """A Lease that we hold, and the work under it once it may begin."""

    share: Share
    lease: LeaseName
    may_begin: asyncio.Event
    task: asyncio.Task[bool]

    async def end(self) -> None:
        """End the work, and the process where it does not end in time."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass(slots=True)
class ShardHolder:
    """One process.

    Attributes:
        api: how to reach the API server.
        lease: that of the first shard; the others' names follow from its.
        identity: what tells this process from others.
        show: told 1 when it begins to look after a share, and 0 when it no longer does.
        show_number: told how many shards there are, whenever that was seen.
        makes_namespace: made before anything else where it is missing; None: it is there.
        abandon: ends the process whose work does not end.
    """

    api: Api
    lease: LeaseName
    identity: str
    show: Callable[[float], None] = lambda _: None
    show_number: Callable[[float], None] = lambda _: None
    makes_namespace: str | None = None
    abandon: Abandon = exit_at_once
    _term: _Term | None = None
    _told: str = ""
    _member: Member = field(init=False)

    def __post_init__(self) -> None:
        self._member = Member(
            self.identity,
            lease_seconds=float(election.LEASE_SECONDS),
            blind_seconds=election.RENEW_DEADLINE_SECONDS,
        )

    async def run(self, work: ShareWork, stop: asyncio.Event) -> bool:
        """Hold a shard wherever one is free, and work while it is held, until told to stop.

        Args:
            work: cancelled when the Lease is lost, when there is another number of shards, and when
                told to stop; it is called again for another share.
            stop: set from outside, by a signal.

        Returns:
            Whether it ended in good order; False: a Lease was lost.

        Raises:
            ConfigurationError: the namespace is missing and may not be made.
            Exception: what the work raised.
        """
        orderly = await until_stopped(self._go_on(work), stop)
        if orderly:
            await self._leave()
        return orderly

    async def _go_on(self, work: ShareWork) -> bool:
        if self.makes_namespace is not None:
            await ensure_namespace(self.api, self.makes_namespace, election.RETRY_SECONDS)
        try:
            while True:
                pause = await self._turn(work)
                if self._term is None:
                    await asyncio.sleep(pause)
                    continue
                await asyncio.wait((self._term.task,), timeout=pause)
                if self._term.task.done():
                    worked, term = self._member.works, self._term
                    self._term = None
                    self._member, _ = step(self._member, Lost(), time.monotonic())
                    orderly = term.task.result()
                    if orderly:
                        await self._give_back(term)
                    if worked or orderly:
                        return orderly
        finally:
            if self._term is not None:
                await self._term.end()

    async def _turn(self, work: ShareWork) -> float:
        """A look and what follows from it; how long to wait before the next one."""
        event = await self._look()
        self._member, orders = step(self._member, event, time.monotonic())
        pause = election.RETRY_SECONDS
        for order in orders:
            match order:
                case Contend(share, version):
                    if await self._take(share, version):
                        self._term = self._begin_term(share, work)
                        self._member, _ = step(self._member, Got(share), time.monotonic())
                        pause = 0.0
                case Begin(share):
                    if self._term is not None:
                        self._term.may_begin.set()
                case Stop(share, why):
                    logger.info("no longer looking after %s: %s", share, why)
                    await self._leave()
                    pause = 0.0
        return pause

    async def _leave(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            await term.end()
            await self._give_back(term)

    async def _give_back(self, term: _Term) -> None:
        await give_back(self.api, term.lease, holder_of(self.identity, term.share))

    # Observing

    async def _look(self) -> Event:
        try:
            async with asyncio.timeout(election.RENEW_DEADLINE_SECONDS / 2):
                number = await self._number()
                leases = await self._leases() if self._member.needs_leases else ()
        except (ApiError, ValueError, TimeoutError) as error:
            self._tell(f"which jobs are whose cannot be seen: {str(error) or 'no answer in time'}")
            return Blind()
        self._told = ""
        self.show_number(number)
        return Looked(number, leases)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            logger.warning("%s", text)

    async def _number(self) -> int:
        try:
            found = await self.api.get("configmaps", self.lease.namespace, NUMBER_OBJECT)
        except ApiRefusedError as error:
            if error.code != 404:
                raise
            return 1
        try:
            return read_number((found.get("data") or {}).get(NUMBER_KEY))
        except ValueError as error:
            # Whoever works goes on: the others see the same, and none begins by another number.
            if self._member.share is None:
                raise
            self._tell(str(error))
            return self._member.share.number

    async def _leases(self) -> tuple[Lease, ...]:
        page = await self.api.list("leases", self.lease.namespace)
        found = {item["metadata"]["name"]: item for item in page.items}
        leases = []
        for shard in range(MOST_SHARDS):
            item = found.get(lease_name(shard, self.lease.name))
            if item is None:
                leases.append(Lease(shard))
                continue
            holder = str((item.get("spec") or {}).get("holderIdentity") or "")
            leases.append(Lease(shard, holder, str(item["metadata"]["resourceVersion"])))
        return tuple(leases)

    # Holding

    async def _take(self, share: Share, version: str) -> bool:
        """Write ourselves into a Lease that nobody holds, unless somebody else has by now."""
        name = lease_name(share.shard, self.lease.name)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": holder_of(self.identity, share),
            "leaseDurationSeconds": election.LEASE_SECONDS,
            "acquireTime": now,
            "renewTime": now,
        }
        try:
            if version:
                body = {"metadata": {"resourceVersion": version}, "spec": spec}
                await self.api.patch("leases", self.lease.namespace, name, body)
            else:
                created = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name},
                    "spec": spec,
                }
                await self.api.create("leases", self.lease.namespace, created)
        except ApiError as error:
            if error.code != 409:
                self._tell(f"the Lease {self.lease.namespace}/{name} was not taken: {error}")
            return False
        return True

    def _begin_term(self, share: Share, work: ShareWork) -> _Term:
        lease = LeaseName(self.lease.namespace, lease_name(share.shard, self.lease.name))
        may_begin = asyncio.Event()

        async def term() -> None:
            await may_begin.wait()
            self.show(1)
            what = "" if share.number == 1 else f", looking after {share}"
            logger.info("leading as %s%s", self.identity, what)
            try:
                await work(share)
            finally:
                self.show(0)

        holder = holder_of(self.identity, share)
        leading = lead(self.api, lease, holder, term, self.abandon)
        task = asyncio.create_task(leading, name=str(share))
        return _Term(share, lease, may_begin, task)
