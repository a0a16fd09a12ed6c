"""The agent: starts a worker's training process, looks after it and speaks for it to the trainer.

Used as one uses torchrun: ``penstock run -- python train.py``. It works for any program, whether or
not that uses `penstock.trainer.elastic`: usage and exit code are reported either way. With
``--nproc-per-node`` it is several processes, ranks of one world over all pods of the job, and
started anew as pods come and go (`penstock.trainer.launch`); with ``--replica-group`` beside it the
world is that of this pod's replica group, and a process that fails ends it. One that hangs is ended
where the trainer says so (`penstock.trainer.standstill.response`). The program inherits the agent's
standard streams, so that what it prints last (a traceback) is the end of the pod's log, and it dies
with the agent, however the agent dies. What it leaves behind (children in the background, whatever
session they made for themselves) is adopted by the agent and ends with it: the end of the program
is that of the process that was started, not that of its output. What a program that failed has left
in the agent's memory is saved (`penstock.trainer.snapshot.keeper`).

Processes that are one rank twice, and workers that train apart from one another, are refused (see
`penstock.trainer.control.model.silent_copies`): the program is ended, and the agent exits with
`REFUSED`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from penstock.crds import environment as names
from penstock.job.call_auth import CallAuth
from penstock.job.identities import PodIdentity
from penstock.job.protocol import (
    AGENT_PATH,
    HEADERS,
    AgentReply,
    AgentReport,
    EndHung,
    ProcessLook,
    ProcessState,
    ProtocolError,
    Usage,
    decode,
    encode,
)
from penstock.trainer import training_evidence
from penstock.trainer.child_processes import adopt_orphans, end_leftovers, reap
from penstock.trainer.control.model.silent_copies import (
    REFUSED,
    Refusal,
    copies_at_end,
    copies_of_one_pod,
    copies_within,
    duplicate_rank,
    unattached,
)
from penstock.trainer.gpu.gpu_meter import GpuMeter
from penstock.trainer.gpu.nvml import NvmlReader
from penstock.trainer.launch.launched_program import LaunchedProgram
from penstock.trainer.launch.program import Program, SingleProgram
from penstock.trainer.launch.restarts import RestartedProgram
from penstock.trainer.process_meter import ProcessMeter
from penstock.trainer.processes import Processes
from penstock.trainer.snapshot.keeper import BREAKPOINT_SECONDS, MEMORY, SnapshotKeeper
from penstock.trainer.standstill.run_queue import RunQueues
from penstock.trainer.standstill.stacks import FOLDER, Stacks

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 1.0
LAST_REPORT_SECONDS: Final = 2.0
VERDICT_SECONDS: Final = 15.0
"""The same while the trainer has yet to say whether the program's end counts."""
VERDICT_PAUSE_SECONDS: Final = 0.2
REQUEST_TIMEOUT_SECONDS: Final = 5.0
DRAIN_SAVE_SECONDS: Final = 10.0
"""What the write of the program's newest snapshot gets where the pod has to go."""
HUNG: Final = 1
ENDED_BEFORE: Final = 128 + signal.SIGTERM
"""The pod was told to end before the program began."""


class Agent:
    """Runs one command to its end; see the module's docstring."""

    def __init__(
        self,
        identity: PodIdentity,
        trainer: str | None,
        grace_seconds: float = 25.0,
        ranks: int = 0,
        *,
        replica_pods: int = 0,
        max_restarts: int = 0,
    ) -> None:
        """Nothing is started yet.

        Args:
            identity: of this pod.
            trainer: HOST:PORT; None: there is none.
            grace_seconds: that SIGTERM leaves the program.
            ranks: processes to start as ranks of one world; 0: the command, as it is.
            replica_pods: where the processes have one session together: of how many pods they are,
                whose world is theirs alone; 0: they have none.
            max_restarts: how often a command that fails is started again here.
        """
        self._ranks = ranks
        self._replica_pods = replica_pods
        self._max_restarts = max_restarts
        self._snapshots = SnapshotKeeper()
        self._identity = identity
        self._trainer = trainer
        self._grace_seconds = grace_seconds
        self._draining = asyncio.Event()
        self._hung = asyncio.Event()
        self._refused = asyncio.Event()
        self._refusal = ""
        self._life = secrets.token_hex(8)
        self._processes = Processes()
        self._stacks = Stacks()
        self._run_queues = RunQueues()
        self._look = 0
        self._shown: tuple[ProcessLook, ...] = ()
        self._ended_hung = ("", 0)  # by which trainer, and which of its orders
        self._told_away = False
        self._old_trainer = False  # it is of the release before
        self._program: Program | None = None
        self._interrupted = False

    async def run(self, command: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
        """Run the command and return its exit code: 128 + N when a signal N ended it."""
        adopt_orphans()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._draining.set)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        if self._processes.name:
            loop.add_reader(self._processes.fileno(), self._hear)
        if not await self._check_node(environ):
            return ENDED_BEFORE
        environment = self._child_environment(environ)
        program = self._program = self._make_program(command, environment)
        if self._interrupted:
            self._interrupt()
        watching = [
            asyncio.create_task(self._report(program, environment)),
            asyncio.create_task(self._drain(program)),
            asyncio.create_task(self._end_on(self._hung, program)),
            asyncio.create_task(self._end_on(self._refused, program)),
            asyncio.create_task(reap(lambda: program.pids)),
        ]
        code = await program.run()
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await end_leftovers()
        if self._hung.is_set():
            code = HUNG  # its own fault, not somebody's who killed it
        self._hear(ended_well=code == 0)
        await self._last_report(code)
        if self._processes.name:
            loop.remove_reader(self._processes.fileno())
        self._processes.close()
        self._stacks.close()
        self._snapshots.close()
        if self._refusal:
            logger.error("%s", self._refusal)
            return REFUSED
        return code

    async def _check_node(self, environ: Mapping[str, str]) -> bool:
        """Have the machine measured where the job asks for it; False: the pod is to end."""
        if environ.get(names.NODE_CHECK) != "1" or self._trainer is None:
            return True
        from penstock.trainer.nodecheck.pod import check_pod  # seldom needed

        await check_pod(self._identity, self._trainer, self._draining)
        return not self._draining.is_set()

    def _make_program(self, command: Sequence[str], environment: Mapping[str, str]) -> Program:
        if not self._ranks:
            return RestartedProgram(
                lambda: SingleProgram(command, environment), self._max_restarts, self._note_failed
            )
        return LaunchedProgram(
            command,
            environment,
            self._ranks,
            self._identity,
            None if self._replica_pods == 1 else self._trainer,
            self._grace_seconds,
            self._processes.idle_seconds,
            max(1, self._replica_pods),
        )

    def _note_failed(self, code: int) -> None:
        """Save what the program had done, on a thread of its own; not of one that was refused."""
        if not self._refusal:
            waits = DRAIN_SAVE_SECONDS if self._draining.is_set() else BREAKPOINT_SECONDS
            self._snapshots.save_newest(waits)

    def _hear(self, *, ended_well: bool = False) -> None:
        """Take in what the program's processes say of themselves."""
        self._processes.receive()
        if self._trainer is None and (refusal := self._judge(ended_well=ended_well)) is not None:
            self._refuse(f"{refusal.reason}: {refusal.message}")  # else the trainer decides

    def _judge(self, *, ended_well: bool) -> Refusal | None:
        """Why the processes of this pod are not one training; None where they may be."""
        rank = self._identity.rank
        if self._processes.duplicates:
            who = "processes " + " and ".join(map(str, self._processes.duplicates))
            return duplicate_rank(rank, who)
        said = self._processes.read(gone_too=ended_well) if self._ranks > 1 else None
        if said and (copies_at_end(said) if ended_well else copies_within(said)):
            return copies_of_one_pod(rank, self._ranks)
        return None

    def _refuse(self, why: str) -> None:
        self._refusal = self._refusal or why
        self._refused.set()

    def _child_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        child = {**environ, "PYTHONUNBUFFERED": "1"}
        if self._trainer is not None:
            child[names.TRAINER_ADDRESS] = self._trainer
        if self._replica_pods:
            child[names.REPLICA_GROUP] = str(self._ranks * self._replica_pods)
        if self._processes.name:
            child[training_evidence.SOCKET] = self._processes.name
            child[FOLDER] = self._stacks.folder
        if self._snapshots.path and not self._ranks:
            child[MEMORY] = self._snapshots.path
        return child

    def _interrupt(self) -> None:
        """Ctrl-C is the program's to answer; the terminal does not reach the session it has."""
        self._interrupted = True
        if self._program is not None:
            self._program.pass_on(signal.SIGINT)

    async def _drain(self, program: Program) -> None:
        """Pass SIGTERM on; what ignores it is killed when the grace period is over."""
        await self._draining.wait()
        program.pass_on(signal.SIGTERM)
        await asyncio.sleep(self._grace_seconds)
        logger.warning("the program ignored SIGTERM for %.0f s: killing it", self._grace_seconds)
        program.pass_on(signal.SIGKILL)

    async def _end_on(self, event: asyncio.Event, program: Program) -> None:
        """A program that hangs does not hear SIGTERM, and one that is refused has nothing to save.

        Its model, that is, which is a copy of others or was trained with half of the data.
        """
        await event.wait()
        program.pass_on(signal.SIGKILL)

    async def _report(self, program: Program, environment: Mapping[str, str]) -> None:
        if self._trainer is None:
            return
        with GpuMeter(NvmlReader(environment)) as gpus:
            meter = ProcessMeter(lambda: program.pids, gpus.read)
            await program.begun()
            async with self._client() as client:
                while True:
                    reply = await self._send(client, ProcessState.RUNNING, None, meter.read())
                    if reply is not None and reply.look and reply.look != self._look:
                        await self._look_at_processes(reply.look)
                        continue
                    self._shown = ()
                    if reply is not None and not reply.look:
                        self._stacks.moved_on()
                    await asyncio.sleep(REPORT_SECONDS)

    async def _look_at_processes(self, look: int) -> None:
        """Answered with the next report, at once."""
        known = self._processes.read() or ()
        self._shown = await self._stacks.look([process.pid for process in known])
        self._look = look

    async def _last_report(self, code: int) -> None:
        """Say how it ended; and stay where that is not for the program alone to say."""
        if self._trainer is None:
            return
        began = time.monotonic()
        alone = code == 0 and unattached(self._processes.read(gone_too=True))
        async with self._client() as client:
            patience = VERDICT_SECONDS if alone else LAST_REPORT_SECONDS
            while (left := began + patience - time.monotonic()) > 0:
                reply = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, LAST_REPORT_SECONDS)):
                        reply = await self._send(client, ProcessState.EXITED, code, None)
                if reply is not None and reply.undecided:
                    patience = VERDICT_SECONDS
                elif reply is not None or not alone:
                    return
                await asyncio.sleep(VERDICT_PAUSE_SECONDS)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://{self._trainer}",
            auth=CallAuth(self._identity.token),
            headers=HEADERS,
            timeout=REQUEST_TIMEOUT_SECONDS,
            trust_env=False,
        )

    async def _send(
        self,
        client: httpx.AsyncClient,
        state: ProcessState,
        exit_code: int | None,
        usage: Usage | None,
    ) -> AgentReply | None:
        """Report; None where that did not arrive."""
        self._processes.note_ended()
        report = AgentReport(
            role=self._identity.role,
            rank=self._identity.rank,
            incarnation=self._identity.incarnation,
            node=self._identity.node,
            pod=self._identity.pod,
            state=state,
            exit_code=exit_code,
            draining=self._draining.is_set() or self._interrupted,
            usage=usage,
            life=self._life,
            launched=0 if self._replica_pods else self._ranks,
            processes=self._run_queues.note(
                self._processes.read(gone_too=state is ProcessState.EXITED)
            ),
            duplicates=self._processes.duplicates,
            looks=bool(self._processes.name),
            look=self._look,
            shown=self._shown,
            ends_hung=bool(self._processes.name),
        )
        try:
            response = await self._post(client, report)
            if response.is_error:
                raise ProtocolError(f"{response.status_code}, {response.text[:500]}")
            reply = decode(AgentReply, response.content)
        except (httpx.HTTPError, ProtocolError) as error:
            if not self._told_away:
                said = error if isinstance(error, ProtocolError) else repr(error)
                logger.warning("the trainer at %s did not take a report: %s", self._trainer, said)
            self._told_away = True
            return None
        self._told_away = False
        if reply.hung_seconds is not None and not self._hung.is_set():
            logger.error("the program has not ended its step for %.0f s", reply.hung_seconds)
            await self._tell_all_threads()
            self._hung.set()
        if reply.superseded and not self._draining.is_set():
            logger.warning("a newer pod has this rank: ending")
            self._draining.set()
        if reply.refused:
            self._refuse(reply.refused)
        if (order := reply.end_hung) is not None:
            this = reply.trainer, order.number
            if this != self._ended_hung:
                self._ended_hung = this
                await self._end_hung(order)
        return reply

    async def _end_hung(self, order: EndHung) -> None:
        """End the program of which a process hangs; its pod goes on with another, or fails."""
        alive = any(one.pid == order.pid for one in self._processes.read() or ())
        if self._program is None or not alive or self._draining.is_set():
            return
        logger.error("%s", order.why)
        await self._tell_all_threads()
        if order.replace:
            self._hung.set()
        elif not self._program.restart():
            logger.warning("the program cannot be started again in its pod: the pod is replaced")
            self._hung.set()

    async def _tell_all_threads(self) -> None:
        """Of processes that are ended next; of one that goes on, it might be the end."""
        known = self._processes.read() or ()
        await self._stacks.tell_all_threads([process.pid for process in known])

    async def _post(self, client: httpx.AsyncClient, report: AgentReport) -> httpx.Response:
        """Send a report in words that the trainer knows; raises httpx.HTTPError."""
        plain = encode(report.for_release_before())
        if self._old_trainer:
            return await client.post(AGENT_PATH, content=plain)
        response = await client.post(AGENT_PATH, content=encode(report))
        if response.status_code != httpx.codes.BAD_REQUEST:
            return response
        again = await client.post(AGENT_PATH, content=plain)
        if again.is_error:  # it is something else that is wrong
            return response
        self._old_trainer = True
        logger.warning(
            "the trainer at %s is of an older release: it does not hear who trains, and cannot "
            "refuse workers that train copies",
            self._trainer,
        )
        return again
