"""The trainer's line to the Brain: samples out, plans in, a copy of the ledger kept.

The Brain may be away for as long as it likes: samples wait in a bounded buffer (the oldest go first
and are counted), plans are asked for again, and training does not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from penstock.base.enums import TRAINER_ROLE
from penstock.client import (
    AsyncBrainClient,
    BrainError,
    BrainRefusedError,
    BrainUnavailableError,
    NotFoundError,
    RetryPolicy,
    SampleBuffer,
)
from penstock.crds.conditions import JobReason
from penstock.data.dispatcher import Dispatcher
from penstock.data.protocol import REPORT_SECONDS
from penstock.throughput.profiles.profile import Profile
from penstock.trainer.brain.failure_log import FailureLog
from penstock.trainer.brain.job_sampler import JobSampler
from penstock.trainer.brain.ledger_copies import LedgerCopies
from penstock.trainer.brain.node_reports import NodeReports
from penstock.trainer.cluster.job_view import RolePods
from penstock.trainer.control.coordinator import Coordinator
from penstock.wire import JobRegistration, Plan
from penstock.wire.problems import ProblemType
from penstock.wire.profiles import ProfileBody, ProfileSource
from penstock.wire.samples import JobEvent, SampleBatch, SampleReceipt

logger = logging.getLogger(__name__)

SAMPLE_SECONDS: Final = 3.0
PLAN_SECONDS: Final = 2.0
PROFILE_SECONDS: Final = 15.0
LEDGER_SECONDS: Final = 3.0
REGISTER_RETRY_SECONDS: Final = 3.0
UNKNOWN_JOB_SECONDS: Final = 0.2
FAREWELL_SECONDS: Final = 8.0
AWAY_SECONDS: Final = 30.0
"""How long a Brain that begins again is waited for at the end of a job."""
AGAIN_SECONDS: Final = 0.5
OLD_BRAIN_SECONDS: Final = 600.0
"""A Brain that did not know the words of this release may have been upgraded after this."""
UNREADABLE: Final = frozenset({400, 422})
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
        self._failures = FailureLog()
        self._sampler = JobSampler(coordinator, dispatcher)
        self.copies = LedgerCopies(client, uid, coordinator, self._failures)
        self._buffer = SampleBuffer()
        self._told: set[JobEvent] = set()  # of pods that are still there
        self._registered = asyncio.Event()
        self.nodes = NodeReports(client, uid, self._failures, self._registered.is_set)
        self._profile_due = 0.0
        self._plain_until = 0.0  # the Brain is of the release before, as far as is known

    def note_pods(self, pods: RolePods, events: Iterable[JobEvent]) -> None:
        """The pods that are there, and what has befallen them.

        Each event is sent once, with the next samples.
        """
        self._sampler.note_pods(pods)
        now = set(events)
        for event in sorted(now - self._told, key=lambda one: one.time):
            self._buffer.add_event(event)
        self._told = now

    async def register(self, describe: Callable[[], JobRegistration | None]) -> None:
        """Keep the job registered: again when the Brain has forgotten it, or there is more to say.

        A job that cannot be described, or that the Brain refuses, is trained without the Brain.
        """
        said: JobRegistration | None = None
        while True:
            pause = REGISTER_RETRY_SECONDS
            try:
                description = describe()
                if description is None:
                    pause = UNKNOWN_JOB_SECONDS
                elif description != said or not self._registered.is_set():
                    await self._send_description(description)
                    if not self._registered.is_set():
                        logger.info("registered with the Brain")
                    said = description
                    self._registered.set()
                    self._failures.note_success("register")
            except Exception as error:  # noqa: BLE001 - no job ends for want of a description
                self._failures.note_failure("register", error)
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
                self._failures.note_success("plan")
                if tagged is not None and await apply(tagged.value):
                    etag = tagged.etag
            except NotFoundError:
                etag = None
            except BrainError as error:
                self._failures.note_failure("plan", error)
            await asyncio.sleep(PLAN_SECONDS)

    async def send_samples(self) -> None:
        """Measure every few seconds and send what is waiting."""
        last = time.monotonic()
        while True:
            while (left := last + SAMPLE_SECONDS - time.monotonic()) > 0:
                await asyncio.sleep(min(left, REPORT_SECONDS))
                self._sampler.note_stages(time.monotonic())
            now = time.monotonic()
            self._buffer.add(self._sampler.measure(now - last, now))
            profile = self._sampler.measure_input(now)
            last = now
            if self._registered.is_set():
                await self._send_waiting()
                await self._send_profile(profile, now)

    async def keep_ledger(self) -> None:
        """Leave a copy of the ledger with the Brain every few seconds while it changes."""
        while True:
            await asyncio.sleep(LEDGER_SECONDS)
            if self._registered.is_set():
                await self.copies.send()

    async def wait_until_back(self) -> None:
        """Wait until the Brain answers, for some time at most, so that it can hear of the end.

        Nobody else tells it: a job that ended while it was away would be lost to it.
        """
        if not self._registered.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AWAY_SECONDS):
                while True:
                    if await self._is_there():
                        return
                    await asyncio.sleep(AGAIN_SECONDS)

    async def _is_there(self) -> bool:
        """Whether the Brain answers, whatever it says."""
        try:
            await self._client.job(self._uid)
        except BrainUnavailableError as error:
            self._failures.note_failure("end", error)
            return False
        except BrainError:
            pass  # it is there
        self._failures.note_success("end")
        return True

    async def leave_ledger(self) -> None:
        """Leave the last copy, where the job may go on with another trainer; soon gives up."""
        if not self._registered.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.copies.send()

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
                await self._send_batch(batch)
                self._failures.note_success("samples")
            except NotFoundError:
                self._registered.clear()  # the Brain lost its store: register again
                return
            except BrainError as error:
                self._failures.note_failure("samples", error)
                return
            self._buffer.confirm(batch)

    async def _send_profile(self, profile: Profile | None, now: float) -> None:
        """Say what the job's input is like, now and then; the next one says it if this is lost."""
        if profile is None or now < self._profile_due:
            return
        self._profile_due = now + PROFILE_SECONDS
        body = ProfileBody(source=ProfileSource.JOB, content=profile.to_json())
        try:
            await self._client.put_profile(self._uid, body)
            self._failures.note_success("profile")
        except NotFoundError as error:
            if error.problem.type != ProblemType.JOB_NOT_FOUND:  # the Brain knows no profiles
                self._profile_due = now + OLD_BRAIN_SECONDS
        except BrainError as error:
            self._failures.note_failure("profile", error)

    async def _send_description(self, description: JobRegistration) -> None:
        """Register the job in words that the Brain knows. Raises BrainError as `_send_batch`."""
        plain = description.for_release_before()
        try:
            await self._client.register(self._uid, description)
        except BrainRefusedError as error:
            if plain == description or error.problem.status not in UNREADABLE:
                raise
            await self._client.register(self._uid, plain)
            logger.warning(
                "the Brain is of an older release: it does not hear of objectives and deadlines"
            )

    def _note(self, receipt: SampleReceipt) -> None:
        """What the Brain has to say to the job's owner becomes a condition of the job."""
        problems, reason = self._coordinator.problems, JobReason.BUDGET_NOT_KEPT
        if receipt.warning:
            problems.report(TRAINER_ROLE, reason, receipt.warning, time.monotonic())
        else:
            problems.clear(TRAINER_ROLE, reason)

    async def _send_batch(self, batch: SampleBatch) -> None:
        """Send samples in words that the Brain knows, which may be of the release before.

        Raises:
            BrainError: it was not there, or refused them for something else.
        """
        plain = batch.for_release_before()
        if plain == batch or time.monotonic() < self._plain_until:
            self._note(await self._client.send_samples(self._uid, plain))
            return
        try:
            self._note(await self._client.send_samples(self._uid, batch))
        except BrainRefusedError as error:
            if error.problem.status not in UNREADABLE:
                raise
            await self._client.send_samples(self._uid, plain)
            logger.warning(
                "the Brain is of an older release: it does not hear of GPUs, share groups or stages"
            )
            self._plain_until = time.monotonic() + OLD_BRAIN_SECONDS
