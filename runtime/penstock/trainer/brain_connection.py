"""The trainer's line to the Brain: samples out, plans in, a copy of the ledger kept.

The Brain may be away for as long as it likes: samples wait in a bounded buffer (the oldest go first
and are counted), plans are asked for again, and training does not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from penstock.base.enums import Role
from penstock.client import (
    AsyncBrainClient,
    BrainError,
    ConflictError,
    NotFoundError,
    RetryPolicy,
    SampleBuffer,
)
from penstock.data.dispatcher import Dispatcher
from penstock.data.ledger.journal import begin
from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import ServerFigures
from penstock.trainer.control import figures
from penstock.trainer.coordinator import Coordinator
from penstock.trainer.job_view import PodLimits
from penstock.wire import JobRegistration, Plan
from penstock.wire.samples import JobEvent, QueueSample, RankSample, Sample

logger = logging.getLogger(__name__)

SAMPLE_SECONDS: Final = 3.0
PLAN_SECONDS: Final = 2.0
LEDGER_SECONDS: Final = 3.0
REGISTER_RETRY_SECONDS: Final = 3.0
UNKNOWN_JOB_SECONDS: Final = 0.2
FAREWELL_SECONDS: Final = 8.0
MAX_LEDGER_BYTES: Final = 1 << 20
LEAST_BUSY: Final = 0.05
"""A training that does less between two batches is taken to do this: how much faster it would be is
not known."""
SHORT: Final = RetryPolicy(total_seconds=4.0, attempt_seconds=3.0)


class BrainConnection:
    """One job's line to the Brain; each loop is a task of the service."""

    def __init__(
        self,
        client: AsyncBrainClient,
        uid: str,
        coordinator: Coordinator,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self._client = client
        self._uid = uid
        self._coordinator = coordinator
        self._dispatcher = dispatcher
        self._buffer = SampleBuffer()
        self.limits: Mapping[tuple[Role, int], PodLimits] = {}
        """Of the pods, by role and rank."""
        self._told: set[JobEvent] = set()  # of pods that are still there
        self._figures: dict[ServerId, ServerFigures] = {}  # as of the last sample
        self._registered = asyncio.Event()
        self._sequence = 0
        self._ledger_kept: bytes | None = None  # the copy that the Brain has
        self._troubles: set[str] = set()

    def tell_events(self, events: Iterable[JobEvent]) -> None:
        """What has befallen the pods that are there; each is sent once, with the next samples."""
        now = set(events)
        for event in sorted(now - self._told, key=lambda one: one.time):
            self._buffer.add_event(event)
        self._told = now

    async def stored_ledger(self) -> bytes | None:
        """The ledger that an earlier trainer left with the Brain, if it can be had now."""
        try:
            snapshot = await self._client.ledger(self._uid)
        except BrainError as error:
            logger.warning("the Brain's copy of the ledger cannot be read: %s", error)
            return None
        if snapshot is None:
            return None
        self._sequence = snapshot.sequence
        return snapshot.content

    def number_from(self, incarnation: int) -> None:
        """Number ledger copies above those of every earlier life of the trainer."""
        self._sequence = max(self._sequence, incarnation << 32)

    async def register(self, describe: Callable[[], JobRegistration | None]) -> None:
        """Keep the job registered: once, and again when the Brain has forgotten it.

        A job that cannot be described, or that the Brain refuses, is trained without the Brain.
        """
        while True:
            pause = REGISTER_RETRY_SECONDS
            if not self._registered.is_set():
                try:
                    if (description := describe()) is None:
                        pause = UNKNOWN_JOB_SECONDS
                    else:
                        await self._client.register(self._uid, description)
                        self._registered.set()
                        self._well("register")
                        logger.info("registered with the Brain")
                except Exception as error:  # noqa: BLE001 - no job ends for want of a description
                    self._trouble("register", error)
            await asyncio.sleep(pause)

    async def follow_plans(self, apply: Callable[[Plan], Awaitable[bool]]) -> None:
        """Hand each new plan in force to ``apply``; what it could not do it is asked again.

        Asked is the Brain, too, so that a newer plan takes the place of one that waits.
        """
        etag: str | None = None
        while True:
            await self._registered.wait()
            try:
                tagged = await self._client.current_plan(self._uid, etag)
                self._well("plan")
                if tagged is not None and await apply(tagged.value):
                    etag = tagged.etag
            except NotFoundError:
                etag = None
            except BrainError as error:
                self._trouble("plan", error)
            await asyncio.sleep(PLAN_SECONDS)

    async def send_samples(self) -> None:
        """Measure every few seconds and send what is waiting."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            now = time.monotonic()
            self._buffer.add(self._measure(now - last, now))
            last = now
            if self._registered.is_set():
                await self._send_waiting()

    async def keep_ledger(self) -> None:
        """Leave a copy of the ledger with the Brain every few seconds while it changes."""
        while True:
            await asyncio.sleep(LEDGER_SECONDS)
            await self._send_ledger()

    async def leave_ledger(self) -> None:
        """Leave the last copy, where the job may go on with another trainer; soon gives up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._send_ledger()

    async def _send_ledger(self) -> None:
        content = self._ledger_copy()
        if content is None or content == self._ledger_kept or not self._registered.is_set():
            return
        self._sequence += 1
        try:
            await self._client.put_ledger(self._uid, self._sequence, content)
            self._well("ledger")
            self._ledger_kept = content
        except ConflictError as error:
            self._trouble("ledger", error)
            await self.stored_ledger()  # learn the newest number
        except BrainError as error:
            self._trouble("ledger", error)

    async def finish(self, message: str) -> None:
        """Say that the job succeeded, with its last samples; gives up after a few seconds."""
        if not self._registered.is_set():
            return
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._send_waiting()
                await self._client.finish(self._uid, "Succeeded", message[:1024])
        except (BrainError, TimeoutError) as error:
            logger.warning("the Brain was not told of the end: %r", error)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _send_waiting(self) -> None:
        while (batch := self._buffer.batch()) is not None:
            try:
                await self._client.send_samples(self._uid, batch)
                self._well("samples")
            except NotFoundError:
                self._registered.clear()  # the Brain lost its store: register again
                return
            except BrainError as error:
                self._trouble("samples", error)
                return
            self._buffer.confirm(batch)

    def _measure(self, interval: float, now: float) -> Sample:
        state, dispatcher = self._coordinator.state, self._dispatcher
        order = state.order
        speed = state.progress.steps_per_second(now, max(interval, 1.0) * 1.5)
        committed = state.committed_steps
        # A program that does not use the API says nothing of steps: it takes one batch in each.
        taken = dispatcher.batches_taken(now) if dispatcher is not None and order is None else 0
        return Sample(
            time=time.time(),
            step=committed or taken,
            epoch=committed // order.steps_per_epoch if order else 0,
            steps_per_second=speed,
            samples_per_second=speed * order.samples_per_step if order else 0.0,
            world_size=figures.world_size(state, now) or self._running_workers(),
            interval_seconds=max(interval, 0.001),
            roles=self._ranks(now),
            queue=self._queue(now),
        )

    def _queue(self, now: float) -> QueueSample | None:
        """What the training processes say of their input queues; None when none takes batches."""
        queue = self._dispatcher.queue(now) if self._dispatcher is not None else None
        if queue is None:
            return None
        ideal = queue.dequeued_per_second / max(1 - queue.wait_share, LEAST_BUSY)
        return QueueSample(
            enqueued_per_second=queue.enqueued_per_second,
            dequeued_per_second=queue.dequeued_per_second,
            ideal_per_second=ideal,
            received_bytes_per_second=queue.received_bytes_per_second,
        )

    def _running_workers(self) -> int:
        """Workers of a job whose script does not use the API."""
        if self._coordinator.state.data is not None:
            return 0
        used = self._coordinator.state.agents.usage(time.monotonic())
        return sum(role == Role.WORKER for role, _ in used)

    def _ranks(self, now: float) -> dict[Role, dict[int, RankSample]]:
        known = {role.value: role for role in Role}
        found: dict[Role, dict[int, RankSample]] = {}
        state, servers = self._coordinator.state, self._coordinator.servers
        members = state.rendezvous.members.present
        speeds = {member.id.rank: member.report.slot_seconds for member in members}
        slots = figures.slots_by_rank(state)
        waits = self._dispatcher.wait_shares(now) if self._dispatcher is not None else {}
        for (name, rank), usage in self._coordinator.state.agents.usage(now).items():
            report = self._coordinator.state.agents.agents[name, rank].report
            if name not in known:
                continue
            trains = known[name] is Role.WORKER
            slot_seconds = speeds.get(rank) if trains else None
            alone = servers.find_worker(rank) if trains else None
            own = alone.report.lease.slot_seconds if alone is not None else None
            step_seconds = slot_seconds * slots.get(rank, 0) if slot_seconds else own
            found.setdefault(known[name], {})[rank] = RankSample(
                cpu_cores=usage.cpu_cores,
                memory_bytes=usage.memory_bytes,
                **self._limits_of(known[name], rank),
                steps_per_second=1 / own if own else None,
                step_seconds=step_seconds,
                wait_share=waits.get(rank) if trains else None,
                node=report.node,
                incarnation=report.incarnation,
            )
        if (measured := self._measure_servers()) is not None:
            found[Role.PS] = measured
        for worker in self._dispatcher.workers(now) if self._dispatcher is not None else ():
            found.setdefault(Role.DATA_WORKER, {})[worker.rank] = RankSample(
                cpu_cores=worker.cpu_cores,
                memory_bytes=worker.memory_bytes,
                node=worker.node,
                incarnation=worker.incarnation,
            )
        return found

    def _measure_servers(self) -> dict[int, RankSample] | None:
        """The servers of the layout that is served; None for a job without servers.

        A server's step is one update: the time for which it was at work for each.
        """
        servers = self._coordinator.servers
        if not servers.active:
            return None
        found: dict[int, RankSample] = {}
        before, self._figures = self._figures, {}
        for owner in servers.layout.servers if servers.layout is not None else ():
            known = servers.find_server(owner.id)
            usage = known.report.usage if known is not None else None
            if known is None or usage is None:
                continue
            self._figures[owner.id] = figures = known.report.figures
            last = before.get(owner.id)
            if last is None:
                continue  # a row is of a server that was there through the whole interval
            updates = figures.pushes - last.pushes
            busy = figures.busy_seconds - last.busy_seconds
            found[owner.id.rank] = RankSample(
                cpu_cores=usage.cpu_cores,
                memory_bytes=usage.memory_bytes,
                **self._limits_of(Role.PS, owner.id.rank),
                step_seconds=busy / updates if updates > 0 else None,
                node=known.report.node,
                incarnation=owner.id.incarnation,
            )
        return found

    def _limits_of(self, role: Role, rank: int) -> dict[str, Any]:
        """The limits of a pod, where it has any."""
        limits = self.limits.get((role, rank))
        if limits is None:
            return {}
        cpu = limits.milli_cpu / 1000 if limits.milli_cpu else None
        return {"cpu_limit_cores": cpu, "memory_limit_bytes": limits.memory_bytes or None}

    def _ledger_copy(self) -> bytes | None:
        ledger, extra = self._coordinator.state.ledger, self._coordinator.extra()
        if ledger is None or extra is None:
            return None
        content = begin(ledger, extra)
        return content if len(content) <= MAX_LEDGER_BYTES else None

    def _trouble(self, what: str, error: Exception) -> None:
        if what not in self._troubles:
            logger.warning("the Brain (%s): %s; trying on", what, _in_one_line(error))
            self._troubles.add(what)

    def _well(self, what: str) -> None:
        if what in self._troubles:
            logger.info("the Brain (%s) answers again", what)
            self._troubles.discard(what)


def _in_one_line(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if isinstance(error, BrainError) else f"{type(error).__name__}: {said}"
