"""One trainer process: server, clock, journal and the lines to Kubernetes and the Brain.

Everything that is decided is decided in `penstock.trainer.coordinator`; here it is only observed
and carried out. A line that is down (no Brain, no API server, a full disk) never stops the
training: it is retried with back-off and said once in the log. The journal is written in the event
loop, so a disk that hangs, unlike one that is full, holds up the trainer.
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

from penstock.base.enums import Strategy
from penstock.client import AsyncBrainClient, TokenFile
from penstock.crds.elasticjob import ElasticJob
from penstock.crds.environment import JOB_TOKEN
from penstock.data.dispatcher import Dispatcher
from penstock.data.ledger import fence_floor_at
from penstock.data.protocol import InputOptions
from penstock.job.settings import SettingsError, TrainerSettings
from penstock.job.storage import cause
from penstock.trainer.brain_connection import SHORT, BrainConnection
from penstock.trainer.control import figures
from penstock.trainer.control.events import PodsKnown
from penstock.trainer.control.job import ControlSettings, JobFacts
from penstock.trainer.control.machine import RECOVERY_SECONDS
from penstock.trainer.coordinator import Coordinator
from penstock.trainer.job_status import ProblemStatus
from penstock.trainer.job_view import (
    facts_of,
    registration_of,
    role_pods,
    scale_of,
    worker_pods,
)
from penstock.trainer.journal import Journal, restore
from penstock.trainer.kube import Json, KubeClient, KubeError, cluster_access
from penstock.trainer.pod_events import pod_events
from penstock.trainer.scale_approval import ScaleApproval
from penstock.trainer.server import Changes, Endpoints, make_server
from penstock.trainer.silent_copies import REFUSED
from penstock.wire import JobRegistration, Plan

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1
JOURNAL_SECONDS: Final = 0.2
LINGER_SECONDS: Final = 2.0
FAREWELL_SECONDS: Final = 90.0
"""How long parameter servers get to hear that the job is done."""
LATECOMER_SECONDS: Final = 60.0
"""How long workers that have just been started get to ask, and to hear that all is done."""
JOB_READ_SECONDS: Final = 15.0
LAST_STATUS_SECONDS: Final = 3.0
"""How long the trainer tries, at its end, to write what it has seen go wrong."""
STATUS_SECONDS: Final = 10.0
"""How long a refused job's workers are not told, while its status cannot be written."""


class End:
    """When a job that is done can be left alone: its trainer is the only one who can say so.

    Whoever repeats its last report gets `LINGER_SECONDS`. Workers that were started just before the
    end have not asked yet and would find nobody: they get `LATECOMER_SECONDS` altogether.
    A job that was refused is never done: the controller ends it, and its trainer with it.
    """

    def __init__(self) -> None:
        self._done_since: float | None = None
        self._first_done: float | None = None
        self._told: set[int] = set()

    def reached(self, coordinator: Coordinator, now: float) -> bool:
        """Whether the trainer may exit now; called at every tick."""
        if not coordinator.done():
            self._done_since = None
            return False
        if self._done_since is None:
            self._done_since = now
        if self._first_done is None:
            self._first_done = now
        if now - self._done_since <= LINGER_SECONDS:
            return False
        if (
            not figures.has_said_farewell(coordinator.state, now)
            and now - self._done_since <= FAREWELL_SECONDS
        ):
            return False
        late = figures.find_latecomers(coordinator.state, now)
        if late and now - self._first_done <= LATECOMER_SECONDS:
            if not late <= self._told:
                logger.info("the data are exhausted; workers %s have yet to hear it", sorted(late))
            self._told |= late
            return False
        if late:
            logger.warning("the data are exhausted; workers %s never asked", sorted(late))
        else:
            logger.info("the data are exhausted and all ranks are done")
        return True


class TrainerService:
    """Runs one job's trainer until the job is done or it is told to stop."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        self._identity = settings.identity
        self._coordinator = Coordinator(
            _facts(settings),
            identity=secrets.token_hex(8),
            settings=_control_settings(settings),
            fence_floor=fence_floor_at(time.time()),
        )
        self._stop = asyncio.Event()
        self._has_servers = asyncio.Event()  # by the job's spec
        self._saved_extra: object = None
        self._waiting_plan: int | None = None  # said in the log
        self._stragglers: set[int] = set()  # said in the log
        self._refused_at: float | None = None  # said in the log
        self._transition = 0  # number of the newest one that was said in the log
        self._job: ElasticJob | None = None
        self._dispatcher = Dispatcher(secrets.token_hex(8), self._input_options)
        self._kube = self._connect_kubernetes()
        self._status = self._open_status()
        self._brain = self._connect_brain()
        self._changes = Changes(self._coordinator)

    async def run(self) -> int:
        """Serve until done; the exit code. SettingsError: port or token cannot be used."""
        if not self._identity.token and not self._settings.host.startswith("127."):
            raise SettingsError(
                f"{JOB_TOKEN}: empty; without a token a trainer listens on loopback only, and "
                f"--host is {self._settings.host}"
            )
        listening = bind(self._settings.host, self._settings.port)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        await self._read_job()
        journal = await self._take_up_state()
        if self._kube is not None:
            self._coordinator.servers.set_pods({}, frozenset())  # none, until they are known
        elif self._settings.servers is not None:
            self._coordinator.servers.expect_servers(self._settings.servers)
        if self._settings.workers is not None:
            self._coordinator.expect_workers(range(self._settings.workers))
        endpoints = Endpoints(
            self._coordinator, self._changes, self._identity.token, self._dispatcher
        )
        server = make_server(endpoints.app())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(sockets=[listening]))
            _say_ready(listening)
            workers = [tasks.create_task(work) for work in self._works(journal)]
            await self._stop.wait()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._say_farewell()
            server.should_exit = True
            await serving
        if journal is not None:
            self._journal_now(journal)
            journal.close()
        return 0 if self._coordinator.problems.fatal is None else REFUSED

    def _works(self, journal: Journal | None) -> list[Coroutine[Any, Any, None]]:
        works = [self._tick()]
        if journal is not None:
            works.append(self._write_journal(journal))
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
                works.append(self._brain.follow_plans(self._apply_plan))
        return works

    # ------------------------------------------------------------------ lines

    def _connect_kubernetes(self) -> KubeClient | None:
        access = cluster_access(self._settings.kubernetes_token_file)
        if access is None:
            return None
        identity = self._identity
        return KubeClient(access, identity.namespace, identity.job, identity.uid)

    def _open_status(self) -> ProblemStatus | None:
        if self._kube is None:
            return None
        return ProblemStatus(self._kube, self._identity.uid, self._coordinator.problems)

    def _connect_brain(self) -> BrainConnection | None:
        url, file = self._settings.brain_url, self._settings.brain_token_file
        if url is None or not self._identity.uid:
            return None
        token = TokenFile(file) if file is not None and file.is_file() else None
        client = AsyncBrainClient(url, token=token, retry=SHORT)
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
            self._brain.note_pods(roles.limits, pod_events(pods))
        known = PodsKnown(
            expected=workers.expected,
            running=workers.running,
            ended=workers.ended,
            servers=roles.servers,
            ended_servers=roles.ended_servers,
        )
        self._coordinator.learn_pods(known, time.monotonic())
        self._changes.publish()

    async def _follow_scales(self, kube: KubeClient) -> None:
        """Answer what the cluster asks about parameter servers; other jobs are not asked."""
        await self._has_servers.wait()
        consent = ScaleApproval(self._coordinator.servers, self._identity.uid)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kube.watch_scales(consent.changed).run())
            while True:
                await consent.answer(kube, time.monotonic())
                await asyncio.sleep(TICK_SECONDS)

    def _input_options(self) -> InputOptions:
        facts = self._coordinator.state.facts
        return InputOptions(guarantee=facts.guarantee, skip_bad=facts.skip_bad)

    def _describe(self) -> JobRegistration | None:
        if self._job is None:
            return None
        data = self._coordinator.state.data
        slots = self._coordinator.state.rendezvous.slots_per_step
        return registration_of(self._job, slots, data.global_batch if data else None)

    async def _apply_plan(self, plan: Plan) -> bool:
        """Write a plan as a Scale; False where that is to be tried again."""
        if self._coordinator.done():
            logger.info("plan %d comes after the end of the data and is not written", plan.id)
            return True
        self._coordinator.weigh_shares(plan.shard_weights)
        scale = scale_of(plan, self._identity)
        if scale is None or self._kube is None:
            return True
        name = scale["metadata"]["name"]
        try:
            if await self._kube.create_scale(scale):
                logger.info("wrote plan %d as Scale %s (%s)", plan.id, name, plan.reason)
        except KubeError as error:
            if 400 <= error.code < 500 and error.code != 429:
                logger.error("plan %d was refused as Scale %s: %s", plan.id, name, error)
                return True
            if self._waiting_plan != plan.id:
                logger.warning("plan %d is not written yet: %s; trying on", plan.id, error)
            self._waiting_plan = plan.id
            return False
        return True

    async def _say_farewell(self) -> None:
        if self._brain is not None:
            if self._coordinator.done():
                summary = self._coordinator.summary(time.monotonic())
                await self._brain.finish(
                    f"{summary.samples_seen} samples seen, {summary.samples_lost} lost, "
                    f"{summary.samples_repeated} repeated; result {summary.result}"
                )
            else:
                await self._brain.leave_ledger()
            await self._brain.close()
        if self._status is not None:
            await self._status.settle(LAST_STATUS_SECONDS)
        if self._kube is not None:
            await self._kube.close()

    # ------------------------------------------------------------------ time

    async def _tick(self) -> None:
        end = End()
        told = ""
        while True:
            now = time.monotonic()
            self._coordinator.advance(now)
            self._changes.publish()
            told = self._say_news(told, now)
            self._say_refusal(now)
            if end.reached(self._coordinator, now) or self._refused_all(now):
                self._stop.set()
                return
            await asyncio.sleep(TICK_SECONDS)

    def _say_refusal(self, now: float) -> None:
        """Say it in the job's status first: else the controller would restart who ends by it."""
        refusal = self._coordinator.problems.fatal
        if refusal is None or self._coordinator.state.copies.shown:
            return
        if self._refused_at is None:
            self._refused_at = now
        shown = self._status is None or self._status.shows(refusal.reason)
        if shown or now - self._refused_at > STATUS_SECONDS:
            self._coordinator.confirm_refusal_shown()

    def _refused_all(self, now: float) -> bool:
        """Without a cluster: whether the job was refused and nobody is left who has to hear it."""
        if self._kube is not None or self._refused_at is None:
            return False
        lingered = now - self._refused_at > LINGER_SECONDS
        return lingered and not self._coordinator.state.agents.any_worker_runs(now)

    def _say_news(self, told: str, now: float) -> str:
        summary = self._coordinator.summary(now)
        in_group = summary.training and summary.group
        news = f"group {summary.group} of {summary.world_size}" if in_group else ""
        news = news or summary.message
        if news and news != told:
            logger.info("%s at step %d of %d", news, summary.committed_steps, summary.total_steps)
        for rank in summary.stragglers.keys() - self._stragglers:
            ratio = summary.stragglers[rank]
            logger.warning(
                "worker %d is a straggler: %.1f times the usual time per slot", rank, ratio
            )
        self._stragglers |= summary.stragglers.keys()
        for transition in self._coordinator.servers.transitions_after(self._transition):
            logger.info("%s", transition)
            self._transition = transition.number
        return news

    # ------------------------------------------------------------------ state

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
            self._report_journal(f"no journal in {folder}: {cause(error)}; going on without one")
            return None

    async def _write_journal(self, journal: Journal) -> None:
        while True:
            await asyncio.sleep(JOURNAL_SECONDS)
            self._journal_now(journal)

    def _journal_now(self, journal: Journal) -> None:
        ledger, extra = self._coordinator.state.ledger, self._coordinator.extra()
        if ledger is None or extra is None:
            return
        events = self._coordinator.take_journal_events()
        try:
            if not journal.begun or journal.too_long or extra != self._saved_extra:
                journal.rewrite(ledger, extra)
                self._saved_extra = extra
            elif events:
                journal.append(events)
        except OSError as error:
            why = f"the journal {journal.path} cannot be written: {cause(error)}; make room there"
            self._report_journal(f"{why}, or mend the disk: it is tried again")
            self._saved_extra = None  # the next success writes everything
        else:
            self._report_journal("")

    def _report_journal(self, trouble: str) -> None:
        self._coordinator.note_journal(trouble, time.monotonic())


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsError that names the port when it is in use."""
    try:
        listening = socket.create_server((host, port), backlog=1024)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error})"
        raise SettingsError(f"port {port} on {host} {why}; choose another with --port") from error
    # Connections inherit it. asyncio sets it on sockets that name their protocol, which these do
    # not: the body of an answer would wait for the acknowledgement of its head, for 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _say_ready(listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    sys.stdout.write(f"trainer listening on http://{host}:{port}\n")
    sys.stdout.flush()


def _facts(settings: TrainerSettings) -> JobFacts:
    facts = JobFacts(
        slots_per_step=settings.slots_per_step,
        min_workers=settings.min_workers,
        skip_bad=settings.skip_bad,
        independent=settings.independent,
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
