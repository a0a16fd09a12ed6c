"""One trainer process: server, clock, journal and the lines to Kubernetes and the Brain.

Everything that is decided is decided in `penstock.trainer.control`; here it is only observed and
carried out. A line that is down (no Brain, no API server, a full disk) never stops the training: it
is retried with back-off and said once in the log. The journal has a thread of its own, so that a
disk that hangs holds up nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from penstock.base.descriptors import raise_descriptor_limit
from penstock.base.enums import OnHang, Strategy
from penstock.base.listener import address_of, create_listener, is_loopback
from penstock.client import AsyncBrainClient, TokenFile
from penstock.client.errors import BrainAddressError
from penstock.client.trust import Trust, trusting
from penstock.crds.elasticjob import ElasticJob
from penstock.crds.environment import BRAIN_CA, JOB_TOKEN
from penstock.data.dispatcher import Dispatcher
from penstock.data.ledger import fence_floor_at
from penstock.data.protocol import InputOptions
from penstock.job.settings import SettingsError, TrainerSettings
from penstock.job.storage import cause
from penstock.parameter_server.control.events import PodsKnown as ServerPodsKnown
from penstock.parameter_server.control.events import ServersExpected
from penstock.trainer.brain.brain_connection import SHORT, BrainConnection
from penstock.trainer.cluster.completion_estimate import CompletionEstimate, as_time
from penstock.trainer.cluster.input_options import input_options_of
from penstock.trainer.cluster.input_status import input_status
from penstock.trainer.cluster.job_end import End, RefusalNotice
from penstock.trainer.cluster.job_status import TrainerStatus
from penstock.trainer.cluster.job_view import (
    facts_of,
    registration_of,
    role_pods,
    worker_pods,
)
from penstock.trainer.cluster.kube import Json, KubeClient, KubeError, cluster_access
from penstock.trainer.cluster.plan_writer import PlanWriter
from penstock.trainer.cluster.pod_events import pod_events
from penstock.trainer.cluster.scale_approval import ScaleApproval
from penstock.trainer.control.coordinator import Coordinator
from penstock.trainer.control.machine import RECOVERY_SECONDS
from penstock.trainer.control.model.events import PodsKnown
from penstock.trainer.control.model.job import ControlSettings, JobFacts
from penstock.trainer.control.model.silent_copies import REFUSED
from penstock.trainer.journal import Journal, restore
from penstock.trainer.journal_writer import JournalWriter
from penstock.trainer.node_moves import NodeMoves
from penstock.trainer.nodecheck.cohort import PodChecks
from penstock.trainer.progress_log import ProgressLog
from penstock.trainer.server import Changes, Endpoints, make_server
from penstock.trainer.shutdown import Shutdown, ends_before
from penstock.trainer.standstill.response import AFTER_SECONDS, HangPolicy
from penstock.wire import JobRegistration

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1
JOB_READ_SECONDS: Final = 15.0


class TrainerService:
    """Runs one job's trainer until the job is done or it is told to stop."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        self._identity = settings.identity
        self._estimate = CompletionEstimate()
        self._coordinator = Coordinator(
            _facts(settings),
            identity=secrets.token_hex(8),
            settings=_control_settings(settings),
            fence_floor=fence_floor_at(time.time()),
        )
        self._stop = asyncio.Event()
        self._has_servers = asyncio.Event()  # by the job's spec
        self._job: ElasticJob | None = None
        self._dispatcher = Dispatcher(secrets.token_hex(8), self._input_options)
        self._kube = self._connect_kubernetes()
        self._status = self._open_status()
        self._brain = self._connect_brain()
        self._changes = Changes(self._coordinator)
        self._checks = PodChecks(replaces=self._kube is not None)

    async def run(self) -> int:
        """Serve until done; the exit code. SettingsError: port or token cannot be used."""
        if not self._identity.token and not is_loopback(self._settings.host):
            raise SettingsError(
                f"{JOB_TOKEN}: empty; without a token a trainer listens on loopback only, and "
                f"--host is {self._settings.host}"
            )
        raise_descriptor_limit()
        listening = bind(self._settings.host, self._settings.port)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        beginning = asyncio.create_task(self._begin())
        shutdown = Shutdown(
            self._coordinator, self._brain, self._status, self._kube, self._dispatcher
        )
        if not await ends_before(self._stop, beginning):
            listening.close()
            await shutdown.close_connections()
            return 0
        writer = beginning.result()
        if self._kube is not None:
            none = ServerPodsKnown({}, frozenset())  # until they are known
            self._coordinator.observe(none, time.monotonic())
        elif self._settings.servers is not None:
            self._coordinator.observe(ServersExpected(self._settings.servers), time.monotonic())
        if self._settings.workers is not None:
            self._coordinator.expect_workers(range(self._settings.workers))
        endpoints = Endpoints(
            self._coordinator,
            self._changes,
            self._identity.token,
            self._dispatcher,
            self._identity.share_token,
            self._checks,
        )
        server = make_server(endpoints.app())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(sockets=[listening]))
            _say_ready(listening)
            workers = [tasks.create_task(work) for work in self._works(writer)]
            await self._stop.wait()
            await shutdown.run(workers, server, serving, writer)
        return 0 if self._coordinator.problems.fatal is None else REFUSED

    def _works(self, writer: JournalWriter | None) -> list[Coroutine[Any, Any, None]]:
        works = [self._tick(), self._follow_checks()]
        if writer is not None:
            works.append(writer.keep())
        if self._kube is not None:
            works.append(self._kube.watch_job(self._job_changed).run())
            works.append(self._kube.watch_pods(self._pods_changed).run())
            works.append(self._follow_scales(self._kube))
        if self._status is not None:
            again = self._identity.incarnation > 0
            works.append(self._status.run(quiet_seconds=RECOVERY_SECONDS if again else 0.0))
        if self._brain is not None:
            works.append(self._brain.register(self._describe))
            works.append(self._brain.send_samples())
            works.append(self._brain.keep_ledger())
            if self._kube is not None:
                plans = PlanWriter(self._coordinator, self._kube, self._identity)
                works.append(self._brain.follow_plans(plans.apply))
        return works

    # ------------------------------------------------------------------ lines

    def _connect_kubernetes(self) -> KubeClient | None:
        access = cluster_access(self._settings.kubernetes_token_file)
        if access is None:
            return None
        identity = self._identity
        return KubeClient(access, identity.namespace, identity.job, identity.uid)

    def _open_status(self) -> TrainerStatus | None:
        if self._kube is None:
            return None
        return TrainerStatus(
            self._kube,
            self._identity.uid,
            self._coordinator.problems,
            self._input_status,
            told_end=self._estimated_end,
        )

    def _estimated_end(self) -> str | None:
        """When the training has seen all its steps, by its speed so far."""
        said = self._coordinator.summary(time.monotonic())
        return as_time(self._estimate.look(said.committed_steps, said.total_steps, time.time()))

    def _connect_brain(self) -> BrainConnection | None:
        url, file = self._settings.brain_url, self._settings.brain_token_file
        if url is None or not self._identity.uid:
            return None
        token = TokenFile(file) if file is not None and file.is_file() else None
        pem = self._settings.brain_authority
        try:
            trust: Trust = True if pem is None else trusting(pem, f"${BRAIN_CA}")
        except BrainAddressError as error:
            logger.error("the Brain is not asked: %s", error)
            return None
        client = AsyncBrainClient(url, token=token, retry=SHORT, verify=trust)
        return BrainConnection(client, self._identity.uid, self._coordinator, self._dispatcher)

    async def _read_job(self) -> None:
        """Read the job's spec before anybody is served: the slots of a step depend on it."""
        if self._kube is None:
            return
        deadline = time.monotonic() + JOB_READ_SECONDS
        while True:
            try:
                self._job_changed([await self._kube.job()])
                return
            except KubeError as error:
                if time.monotonic() > deadline or error.code in (401, 403):
                    logger.warning("the job cannot be read, going on with defaults: %s", error)
                    return
            await asyncio.sleep(0.5)

    def _job_changed(self, jobs: list[Json]) -> None:
        for job in jobs:
            if job["metadata"].get("uid") != self._identity.uid:
                continue  # another job of this name
            if self._status is not None:
                self._status.seen(job)
            try:
                self._job = ElasticJob.model_validate(job)
            except ValidationError as error:
                logger.warning("the job's spec cannot be read: %s", error)
                continue
            self._coordinator.learn(facts_of(self._job))
            if self._job.spec.strategy is Strategy.PARAMETER_SERVER:
                self._has_servers.set()

    def _pods_changed(self, pods: list[Json]) -> None:
        workers, roles = worker_pods(pods), role_pods(pods)
        if self._brain is not None:
            self._brain.note_pods(roles, pod_events(pods))
        known = PodsKnown(
            expected=workers.expected,
            running=workers.running,
            ended=workers.ended,
            servers=roles.servers,
            ended_servers=roles.ended_servers,
        )
        self._coordinator.observe(known, time.monotonic())
        self._changes.publish()

    async def _follow_scales(self, kube: KubeClient) -> None:
        """Answer what the cluster asks about parameter servers; other jobs are not asked."""
        await self._has_servers.wait()
        consent = ScaleApproval(self._coordinator, self._identity.uid)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kube.watch_scales(consent.changed).run())
            while True:
                await consent.answer(kube, time.monotonic())
                await asyncio.sleep(TICK_SECONDS)

    async def _follow_checks(self) -> None:
        """Carry out what checks of nodes find, in a job that asks for them."""
        records = self._brain.nodes if self._brain is not None else None
        moves = NodeMoves(self._checks, self._kube, records, self._identity)
        await moves.run(lambda: self._job is not None and bool(self._job.spec.node_check))

    def _input_options(self) -> InputOptions:
        facts = self._coordinator.state.facts
        said: dict[str, object] = {"guarantee": facts.guarantee, "skip_bad": facts.skip_bad}
        if not self._identity.share_token:  # its pods are in no group, whatever the spec says
            said["share"] = None
        job = self._job
        options = InputOptions() if job is None else input_options_of(job.spec.input)
        return options.model_copy(update=said)

    def _input_status(self) -> Json | None:
        return input_status(self._dispatcher.partition(time.monotonic()))

    def _describe(self) -> JobRegistration | None:
        if self._job is None:
            return None
        state = self._coordinator.state
        return registration_of(
            self._job,
            state.rendezvous.slots_per_step,
            state.data.global_batch if state.data else None,
            state.order.total_steps if state.order else None,
        )

    # ------------------------------------------------------------------ time

    async def _tick(self) -> None:
        end, log = End(), ProgressLog(self._coordinator)
        refusal = RefusalNotice(self._coordinator, self._status)
        while True:
            now = time.monotonic()
            self._coordinator.advance(now)
            self._changes.publish()
            log.advance(now)
            refusal.advance(now)
            done = end.reached(self._coordinator, now)
            if done and self._brain is not None:
                await self._brain.wait_until_back()
            if done or refusal.all_told(now):
                self._stop.set()
                return
            await asyncio.sleep(TICK_SECONDS)

    # ------------------------------------------------------------------ state

    async def _begin(self) -> JournalWriter | None:
        """Learn the job and what an earlier trainer left; who writes the journal, if any."""
        await self._read_job()
        journal = await self._take_up_state()
        return JournalWriter(journal, self._coordinator) if journal is not None else None

    async def _take_up_state(self) -> Journal | None:
        """Begin where an earlier trainer of this job was: its journal, else the Brain's copy."""
        folder = self._settings.state_dir
        journal = self._open_journal(folder) if folder is not None else None
        now = time.monotonic()
        left = journal.load() if journal is not None else None
        name = str(journal.path) if journal is not None else ""
        if left is None and self._brain is not None and self._identity.incarnation > 0:
            left, name = await self._brain.copies.fetch(), "the Brain's copy of the ledger"
        if left is not None:
            restore(left, name, self._coordinator, now)
        if self._identity.incarnation > 0:
            self._coordinator.await_survivors(now)
        if self._brain is not None:
            self._brain.copies.number_from(self._identity.incarnation)
        return journal

    def _open_journal(self, folder: Path) -> Journal | None:
        try:
            return Journal(folder)
        except OSError as error:
            why = f"no journal in {folder}: {cause(error)}; going on without one"
            self._coordinator.note_journal(why, time.monotonic())
            return None


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsError that names the port when it is in use."""
    try:
        return create_listener(host, port)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error})"
        raise SettingsError(f"port {port} on {host} {why}; choose another with --port") from error


def _say_ready(listening: socket.socket) -> None:
    sys.stdout.write(f"trainer listening on http://{address_of(listening)}\n")
    sys.stdout.flush()


def _facts(settings: TrainerSettings) -> JobFacts:
    facts = JobFacts(
        slots_per_step=settings.slots_per_step,
        min_workers=settings.min_workers,
        skip_bad=settings.skip_bad,
        independent=settings.independent,
        hang_policy=HangPolicy(
            response=settings.on_hang or OnHang.REPORT,
            after_seconds=settings.on_hang_after_seconds or AFTER_SECONDS,
        ),
    )
    if settings.lease_seconds is not None:
        facts = replace(facts, lease_seconds=settings.lease_seconds)
    return facts


def _control_settings(settings: TrainerSettings) -> ControlSettings:
    known = ControlSettings(job=settings.identity.job, balance_shares=not settings.static_shares)
    if settings.hang_seconds is not None:
        known = replace(known, hang_seconds=settings.hang_seconds)
    return known


def run(settings: TrainerSettings) -> int:
    """Run a trainer to its end; its exit code."""
    return asyncio.run(TrainerService(settings).run())
