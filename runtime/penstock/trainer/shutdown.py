"""The end of a trainer's process: within 10 s of being told to stop it has to be gone.

Whoever is told farewell may be away, so all are told at once, and one limit is over everything. The
journal waits for nobody but the server: what it has then is all that there was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from penstock.base.http.server import HttpServer
from penstock.data.dispatcher import Dispatcher
from penstock.trainer.brain.brain_connection import BrainConnection
from penstock.trainer.cluster.job_status import TrainerStatus
from penstock.trainer.cluster.kube import KubeClient
from penstock.trainer.control.coordinator import Coordinator
from penstock.trainer.control.model.summary import Summary
from penstock.trainer.journal_writer import JournalWriter

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 9.0
"""All that a trainer does at its end takes no longer; the rest is for Python's own."""
CANCEL_SECONDS: Final = 1.0
"""How long what it was at may take to let go."""
SERVER_STOP_SECONDS: Final = 2.5
"""How long answers under way are waited for, before the last of the journal is written."""
LAST_STATUS_SECONDS: Final = 3.0
"""How long the trainer tries, at its end, to write what it has seen go wrong."""


class Shutdown:
    """Ends what one trainer has open."""

    def __init__(
        self,
        coordinator: Coordinator,
        brain: BrainConnection | None,
        status: TrainerStatus | None,
        kube: KubeClient | None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._brain = brain
        self._status = status
        self._kube = kube
        self._dispatcher = dispatcher

    async def run(
        self,
        workers: Sequence[asyncio.Task[None]],
        server: HttpServer,
        serving: asyncio.Task[None],
        writer: JournalWriter | None,
    ) -> None:
        """End it all; what hangs is left."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                for worker in workers:
                    worker.cancel()
                await asyncio.wait(workers, timeout=CANCEL_SECONDS)
                await self._say_farewell(server, serving, writer)
        except TimeoutError:
            logger.warning("left after %g s, before all was said", STOP_SECONDS)

    async def close_connections(self) -> None:
        """Close those to the Brain and to the cluster."""
        if self._brain is not None:
            await self._brain.close()
        if self._kube is not None:
            await self._kube.close()

    async def _say_farewell(
        self, server: HttpServer, serving: asyncio.Task[None], writer: JournalWriter | None
    ) -> None:
        """Everywhere at once: none of them waits for another, or fails with it."""
        ends = [_close_journal(server, serving, writer), self._leave_brain(), self._settle()]
        try:
            ended = await asyncio.gather(*ends, return_exceptions=True)
        finally:
            serving.cancel()
            await self.close_connections()
        for error in ended:
            if error is not None:
                raise error

    async def _leave_brain(self) -> None:
        if self._brain is None:
            return
        if self._coordinator.done():
            now = time.monotonic()
            taken = self._dispatcher.batches_taken(now) if self._dispatcher is not None else 0
            await self._brain.finish(in_words(self._coordinator.summary(now), taken))
        else:
            await self._brain.leave_ledger()

    async def _settle(self) -> None:
        if self._status is not None:
            await self._status.settle(LAST_STATUS_SECONDS)


def in_words(summary: Summary, batches_taken: int) -> str:
    """What a job that has ended did.

    Args:
        summary: of its trainer.
        batches_taken: by a program that does not use the API, of which no sample is counted.
    """
    parts = []
    if summary.data is not None:
        parts.append(
            f"{summary.samples_seen} samples seen, {summary.samples_lost} lost, "
            f"{summary.samples_repeated} repeated"
        )
    elif batches_taken:
        parts.append(f"{batches_taken} batches taken by the program, whose samples are not counted")
    if summary.result is not None:
        parts.append(f"result {summary.result}")
    return "; ".join(parts) or "the program ended by itself"


async def _close_journal(
    server: HttpServer, serving: asyncio.Task[None], writer: JournalWriter | None
) -> None:
    server.should_exit = True
    await asyncio.wait([serving], timeout=SERVER_STOP_SECONDS)
    if writer is not None:
        await writer.close()


async def ends_before(stop: asyncio.Event, work: asyncio.Task[Any]) -> bool:
    """Whether some work ends before the trainer is told to stop; else it is cut short."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        return True
    work.cancel()
    await asyncio.wait([work], timeout=CANCEL_SECONDS)
    return False
